"""Checks of embeddings: whether the models that the operator chose can be used, and what the local model needs."""

from collections.abc import Iterable
from typing import Final

from holdfast.adapters.embedder.local.models import LOCAL_PROVIDER
from holdfast.adapters.embedder.local.package import LOCAL_MODELS, LocalModel
from holdfast.adapters.embedder.router import EmbedderRouter
from holdfast.errors import ModelError, UnknownModel
from holdfast.ports.doctor_check import Check, Verdict

_TOPIC: Final = "embeddings"
_TEXT: Final = "Does this make a vector?"


async def check_embeddings(
    embedder: EmbedderRouter, handles: Iterable[str], *, ask: bool
) -> list[Check]:
    """Check the models that the settings name. A vector is made only if ``ask`` is set. Closes the embedder."""
    named = sorted(set(handles))
    try:
        checks = [await _check_model(embedder, handle, ask=ask) for handle in named]
    finally:
        await embedder.aclose()
    if not named:
        checks.append(Check(Verdict.NOTE, _TOPIC, _NO_DEFAULT))
    mentioned = {handle for handle in named if handle.partition("/")[0] == LOCAL_PROVIDER}
    return checks + [
        _check_local(model)
        for name, model in LOCAL_MODELS.items()
        if f"{LOCAL_PROVIDER}/{name}" not in mentioned
    ]


_NO_DEFAULT: Final = (
    "HOLDFAST_DEFAULT_EMBEDDING is not set: text is found by its words, unless an agent, archive or folder "
    "names a model."
)


async def _check_model(embedder: EmbedderRouter, handle: str, *, ask: bool) -> Check:
    local = LOCAL_MODELS.get(handle.removeprefix(f"{LOCAL_PROVIDER}/"))
    if local is not None and (missing := local.find_missing()):
        message = f"{handle} is not installed: {' and '.join(missing)}"
        return Check(Verdict.PROBLEM, _TOPIC, message)
    if embedder.is_configured(handle) and not ask:
        return Check(Verdict.GOOD, _TOPIC, f"{handle} is configured.")
    try:
        made = await embedder.embed(handle, [_TEXT])
    except UnknownModel as error:
        return Check(Verdict.PROBLEM, _TOPIC, str(error))
    except ModelError as error:
        return Check(Verdict.PROBLEM, _TOPIC, f"{handle} makes no vectors: {error.detail}")
    dimensions = made.vectors[0].dimensions
    return Check(Verdict.GOOD, _TOPIC, f"{handle} makes vectors of {dimensions} numbers.")


def _check_local(model: LocalModel) -> Check:
    handle = f"{LOCAL_PROVIDER}/{model.name}"
    missing = model.find_missing()
    if not missing:
        return Check(Verdict.GOOD, _TOPIC, f"{handle} is installed.")
    message = f"For {handle}, which needs no provider: {' and '.join(missing)}"
    return Check(Verdict.NOTE, _TOPIC, message)
