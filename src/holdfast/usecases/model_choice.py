"""From what a caller asks of a model to the choice that an agent keeps."""

from typing import Any

from msgspec import Struct, structs

from holdfast.core.models import DEFAULT_CONTEXT_WINDOW, ModelChoice, ModelSettings
from holdfast.errors import InvalidArgument
from holdfast.ports.model import Catalogue


class ModelWish(Struct, frozen=True, kw_only=True):
    """What the caller said about the model; None means that it was not mentioned."""

    handle: str | None = None
    context_window: int | None = None
    # A whole set of settings: replaces what was set before.
    settings: ModelSettings | None = None
    # Single settings: each replaces its own value only, and gives way to ``settings``.
    knobs: ModelSettings = ModelSettings()
    clear_max_output_tokens: bool = False
    # Where the model is to be asked, as a legacy config names it.
    endpoint: str | None = None
    # What the caller said and we do not know; it is told back.
    unknown: tuple[str, ...] = ()
    # The caller's own words, to be echoed.
    model_settings: dict[str, Any] | None = None
    llm_config: dict[str, Any] | None = None


NO_WISH = ModelWish()


def choose(catalogue: Catalogue, wish: ModelWish) -> ModelChoice:
    """The choice of somebody who has none yet."""
    handle = wish.handle or catalogue.default_handle()
    if handle is None:
        raise InvalidArgument("Must specify either model or llm_config in request")
    choice = ModelChoice(
        handle=handle,
        context_window=_window(catalogue, handle, wish),
        settings=_settings(ModelSettings(), wish),
        endpoint=wish.endpoint,
        model_settings=wish.model_settings,
        llm_config=wish.llm_config,
    )
    return _judged(catalogue, choice, wish)


async def prepare(catalogue: Catalogue, wish: ModelWish) -> None:
    """Learn what the choice will need."""
    handle = wish.handle or catalogue.default_handle()
    if handle is not None and wish != NO_WISH:
        asked = wish.settings is not None or wish.knobs != ModelSettings()
        await catalogue.prepare(handle, settings=asked)


def change(catalogue: Catalogue, current: ModelChoice, wish: ModelWish) -> ModelChoice:
    """The choice after an update. Another model starts afresh: what suited the old one may break the new."""
    if wish == NO_WISH:
        return current
    if wish.handle not in (None, current.handle):
        return choose(catalogue, wish)
    base = current.settings if wish.settings is None else ModelSettings()
    changed = structs.replace(
        current,
        endpoint=current.endpoint if wish.llm_config is None else wish.endpoint,
        context_window=wish.context_window or current.context_window,
        settings=_settings(base, wish),
        model_settings=wish.model_settings or current.model_settings,
        llm_config=wish.llm_config or current.llm_config,
    )
    return _judged(catalogue, changed, wish)


def _judged(catalogue: Catalogue, choice: ModelChoice, wish: ModelWish) -> ModelChoice:
    judged = catalogue.judged(choice)
    return structs.replace(judged, ignored=(*wish.unknown, *judged.ignored))


def _window(catalogue: Catalogue, handle: str, wish: ModelWish) -> int:
    if wish.llm_config is not None and wish.context_window is not None:
        # A whole legacy config says all there is to say, and V1 took it as it came. Whether its provider is
        # configured is asked when a message is sent.
        return wish.context_window
    info = catalogue.find(handle)
    return wish.context_window or min(info.context_window, DEFAULT_CONTEXT_WINDOW)


def _settings(base: ModelSettings, wish: ModelWish) -> ModelSettings:
    settings = _laid_over(_laid_over(base, wish.knobs), wish.settings or ModelSettings())
    if wish.clear_max_output_tokens:
        return structs.replace(settings, max_output_tokens=None)
    return settings


def _laid_over(base: ModelSettings, upper: ModelSettings) -> ModelSettings:
    given = {key: value for key, value in structs.asdict(upper).items() if value is not None}
    return structs.replace(base, **given)
