"""Passages with vectors that a test chooses."""

from collections.abc import Sequence

from holdfast.core.embeddings import EmbeddedText, QueryVector, to_vector
from holdfast.core.passages import Passage
from holdfast.ports.store import Store, Transaction

MODEL = "test/words"


def query_vector(*numbers: float, model: str = MODEL) -> QueryVector:
    return QueryVector(model, to_vector(numbers))


async def add_with_vectors(
    store: Store,
    passages: Sequence[Passage],
    vectors: Sequence[Sequence[float]],
    *,
    model: str = MODEL,
) -> Sequence[Passage]:
    """Store the passages with one vector each."""

    def work(tx: Transaction) -> Sequence[Passage]:
        stored = tx.passages.add(passages, model=model)
        tx.passage_vectors.save(
            [
                EmbeddedText(passage.position, model, to_vector(numbers))
                for passage, numbers in zip(stored, vectors, strict=True)
            ]
        )
        return stored

    return await store.write(work)


async def prepare_search(store: Store, model: str, dimensions: int) -> None:
    """Make pgvector ready, where it is."""
    while await store.write(lambda tx: tx.passage_vectors.prepare_search(model, dimensions)):
        pass
