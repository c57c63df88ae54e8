"""From what a caller asks of a model to the choice that an agent keeps."""

from typing import Any

from msgspec import Struct, structs

from holdfast.core.models import DEFAULT_CONTEXT_WINDOW, ModelChoice, ModelSettings
from holdfast.errors import InvalidArgument
from holdfast.ports.model import Catalogue


class RequestedModel(Struct, frozen=True, kw_only=True):
    """What the caller said about the model; None means that it was not mentioned."""

    handle: str | None = None
    context_window: int | None = None
    # A whole set of settings: replaces what was set before.
    settings: ModelSettings | None = None
    # Single settings: each replaces its own value only, and gives way to ``settings``.
    single_settings: ModelSettings = ModelSettings()
    clear_max_output_tokens: bool = False
    # Where the model is to be asked, as a legacy config names it.
    endpoint: str | None = None
    # What the caller said and we do not know; it is told back.
    unknown_settings: tuple[str, ...] = ()
    # The caller's own words, to be echoed.
    model_settings: dict[str, Any] | None = None
    llm_config: dict[str, Any] | None = None


NO_MODEL_REQUESTED = RequestedModel()


def choose(catalogue: Catalogue, requested: RequestedModel) -> ModelChoice:
    """The choice of somebody who has none yet."""
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
    """Learn what the choice will need."""
    handle = requested.handle or catalogue.default_handle()
    if handle is not None and requested != NO_MODEL_REQUESTED:
        asked = requested.settings is not None or requested.single_settings != ModelSettings()
        await catalogue.prepare(handle, settings=asked)


def change(catalogue: Catalogue, current: ModelChoice, requested: RequestedModel) -> ModelChoice:
    """The choice after an update. Another model starts afresh: what suited the old one may break the new."""
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
    judged = catalogue.with_warnings(choice)
    return structs.replace(judged, ignored=(*requested.unknown_settings, *judged.ignored))


def _choose_context_window(catalogue: Catalogue, handle: str, requested: RequestedModel) -> int:
    if requested.llm_config is not None and requested.context_window is not None:
        # A whole legacy config says all there is to say, and V1 took it as it came. Whether its provider is
        # configured is asked when a message is sent.
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
