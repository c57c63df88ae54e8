"""Turning the model that a caller requests into the choice that an agent stores."""

from typing import Any

from msgspec import Struct, structs

from holdfast.core.models import DEFAULT_CONTEXT_WINDOW, ModelChoice, ModelSettings
from holdfast.errors import InvalidArgument
from holdfast.ports.model import Catalogue


class RequestedModel(Struct, frozen=True, kw_only=True):
    """What a request says about the model; None means that the field was not given."""

    handle: str | None = None
    context_window: int | None = None
    # A whole set of settings, which replaces the current set.
    settings: ModelSettings | None = None
    # Single settings, each of which replaces one value; ``settings`` takes precedence.
    single_settings: ModelSettings = ModelSettings()
    clear_max_output_tokens: bool = False
    # The model's URL, from a legacy config.
    endpoint: str | None = None
    # Warnings about settings that are not known here; they are returned to the caller.
    unknown_settings: tuple[str, ...] = ()
    # The request's own JSON, returned as it came.
    model_settings: dict[str, Any] | None = None
    llm_config: dict[str, Any] | None = None


NO_MODEL_REQUESTED = RequestedModel()


def choose(catalogue: Catalogue, requested: RequestedModel) -> ModelChoice:
    """The choice for a new agent."""
    handle = requested.handle or catalogue.default_handle()
    if handle is None:
        raise InvalidArgument("Must specify either model or llm_config in request")
    choice = ModelChoice(
        handle=handle,
        context_window=_choose_context_window(catalogue, handle, requested),
        settings=_merge_settings(ModelSettings(), requested),
        endpoint=requested.endpoint,
        model_settings=requested.model_settings,
        llm_config=requested.llm_config,
    )
    return _with_warnings(catalogue, choice, requested)


async def prepare(catalogue: Catalogue, requested: RequestedModel) -> None:
    """Load what the catalogue must know about the requested model."""
    handle = requested.handle or catalogue.default_handle()
    if handle is not None and requested != NO_MODEL_REQUESTED:
        has_settings = (
            requested.settings is not None or requested.single_settings != ModelSettings()
        )
        await catalogue.prepare(handle, settings=has_settings)


def change(catalogue: Catalogue, current: ModelChoice, requested: RequestedModel) -> ModelChoice:
    """The choice after an update. Another model starts from defaults: the old settings may be invalid for it."""
    if requested == NO_MODEL_REQUESTED:
        return current
    if requested.handle not in (None, current.handle):
        return choose(catalogue, requested)
    base = current.settings if requested.settings is None else ModelSettings()
    changed = structs.replace(
        current,
        endpoint=current.endpoint if requested.llm_config is None else requested.endpoint,
        context_window=requested.context_window or current.context_window,
        settings=_merge_settings(base, requested),
        model_settings=requested.model_settings or current.model_settings,
        llm_config=requested.llm_config or current.llm_config,
    )
    return _with_warnings(catalogue, changed, requested)


def _with_warnings(
    catalogue: Catalogue, choice: ModelChoice, requested: RequestedModel
) -> ModelChoice:
    checked = catalogue.with_warnings(choice)
    return structs.replace(checked, ignored=(*requested.unknown_settings, *checked.ignored))


def _choose_context_window(catalogue: Catalogue, handle: str, requested: RequestedModel) -> int:
    if requested.llm_config is not None and requested.context_window is not None:
        # A whole legacy config is complete, and V1 stored it unchecked. Whether its provider is configured is checked
        # when a message is sent.
        return requested.context_window
    info = catalogue.find(handle, must_be_listed=requested.handle is not None)
    return requested.context_window or min(info.context_window, DEFAULT_CONTEXT_WINDOW)


def _merge_settings(base: ModelSettings, requested: RequestedModel) -> ModelSettings:
    settings = _overlay(
        _overlay(base, requested.single_settings), requested.settings or ModelSettings()
    )
    if requested.clear_max_output_tokens:
        return structs.replace(settings, max_output_tokens=None)
    return settings


def _overlay(base: ModelSettings, upper: ModelSettings) -> ModelSettings:
    given = {key: value for key, value in structs.asdict(upper).items() if value is not None}
    return structs.replace(base, **given)
