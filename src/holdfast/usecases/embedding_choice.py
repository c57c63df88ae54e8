"""Turning the embedding model that a caller names into what an agent, an archive or a folder stores.

An embedding model is never required. One that is not configured is kept and shown (memory-v1 §4.4): no vectors are made
until it is, and text is found by its words.
"""

import logging
from typing import Any, Final

from msgspec import Struct, structs

from holdfast.errors import InvalidArgument
from holdfast.ports.services import Services
from holdfast.usecases.agent_views import AgentView

# What V1 assumed of a model that nobody knows.
DEFAULT_DIMENSIONS: Final = 1536
# Tokens of a file that become one passage (memory-v1 §4.1).
DEFAULT_CHUNK_SIZE: Final = 300

log = logging.getLogger(__name__)


class EmbeddingChoice(Struct, frozen=True, kw_only=True):
    """A handle, and V1's configuration of the model; both None: no vectors."""

    handle: str | None = None
    config: dict[str, Any] | None = None


NO_EMBEDDING: Final = EmbeddingChoice()


def check_handle(handle: str) -> None:
    """Refuse what is not ``provider/name``."""
    provider, _, name = handle.partition("/")
    if not (provider.strip() and name.strip()):
        # The words are part of the contract (memory-v1 §4.4).
        raise InvalidArgument(f"Embedding model {handle} not found")


async def choose(
    services: Services, handle: str | None, config: dict[str, Any] | None = None
) -> EmbeddingChoice:
    """The choice for something new. A caller's whole ``config`` is kept as it came and wins over ``handle``; without both
    it is the operator's default."""
    if config is not None:
        handle = config.get("handle") or _config_handle(config)
    if handle is None:
        handle = services.catalogue.default_embedding()
    if handle is None:
        return NO_EMBEDDING
    check_handle(handle)
    if not services.embedder.is_configured(handle):
        log.info("embedding.not_configured", extra={"model": handle})
    shown = config if config is not None else await _describe(services, handle)
    return EmbeddingChoice(handle=handle, config={**shown, "handle": handle})


def find_warnings(services: Services, handle: str | None) -> tuple[str, ...]:
    """A sentence if the model cannot be used now."""
    if handle is None or services.embedder.is_configured(handle):
        return ()
    return (
        f"The embedding model {handle} is not configured: no vectors are made, and text is found by its words.",
    )


def with_warnings(services: Services, view: AgentView) -> AgentView:
    warnings = find_warnings(services, view.agent.embedding)
    return structs.replace(view, embedding_warnings=warnings) if warnings else view


async def _describe(services: Services, handle: str) -> dict[str, Any]:
    provider, _, name = handle.partition("/")
    known = await services.catalogue.find_embedding(handle)
    return {
        "embedding_model": name,
        "embedding_endpoint_type": provider,
        "embedding_dim": known.dimensions if known else DEFAULT_DIMENSIONS,
        "embedding_chunk_size": DEFAULT_CHUNK_SIZE,
    }


def _config_handle(config: dict[str, Any]) -> str:
    return f"{config.get('embedding_endpoint_type', '')}/{config.get('embedding_model', '')}"
