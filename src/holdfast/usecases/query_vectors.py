"""What a query means to the models of what is searched. A model that does not answer soon is left out."""

import asyncio
from collections.abc import Collection, Sequence
from typing import Final

from msgspec import Struct

from holdfast.core.embeddings import QueryVector
from holdfast.errors import ModelError, UnknownModel
from holdfast.ports.services import Services

# How long a search waits for the vector of its query. Then it uses words only.
QUERY_SECONDS: Final = 3.0


class EmbeddedQuery(Struct, frozen=True):
    """``unused``: a sentence for each model that could not be used."""

    vectors: Sequence[QueryVector]
    unused: tuple[str, ...] = ()


async def embed_query(services: Services, query: str, models: Collection[str]) -> EmbeddedQuery:
    """Embed the query once for each of the models, all at the same time."""
    made = await asyncio.gather(*(_embed(services, query, model) for model in models))
    return EmbeddedQuery(
        [item for item in made if isinstance(item, QueryVector)],
        tuple(item for item in made if isinstance(item, str)),
    )


def describe_waiting(count: int, model: str) -> str:
    """The sentence about texts that have no vector yet."""
    return f"{count} texts have no vector of {model} yet: they were searched by words only."


async def _embed(services: Services, query: str, model: str) -> QueryVector | str:
    if not services.embedder.is_configured(model):
        return (
            f"The embedding model {model} is not configured: its texts were searched by words only."
        )
    try:
        async with asyncio.timeout(QUERY_SECONDS):
            made = await services.embedder.embed(model, [query], is_query=True)
    except TimeoutError:
        why = f"it took longer than {QUERY_SECONDS:g} seconds"
    except (ModelError, UnknownModel) as error:
        why = str(error).rstrip(".")
    else:
        return QueryVector(model, made.vectors[0])
    return f"The embedding model {model} did not answer ({why}): its texts were searched by words only."
