"""Search by words and vectors in the store, and storing a passage with its vector: an archive with 100,000 passages. Without
HTTP and without the time that the provider takes."""

import time
from collections.abc import Sequence
from itertools import count
from typing import Final

import numpy as np

from bench.context import BenchContext
from bench.many_texts import ARCHIVES, MEDIUM, TAG, fill_passages, list_words, make_passage
from bench.many_vectors import MODEL, Matrix, fill_vectors, make_queries, make_vectors
from bench.measurements import Measurement, median
from bench.rows.search import filled_store
from holdfast.adapters.store.sql_store import SqlStore
from holdfast.core.embeddings import EmbeddedText, QueryVector
from holdfast.core.ids import DEFAULT_ORGANIZATION_ID
from holdfast.core.passages import PassageFilter
from holdfast.ports.store import Transaction

SQLITE_BUDGET_MS: Final = 60
POSTGRES_BUDGET_MS: Final = 25
INSERT_BUDGET_MS: Final = 5
RECALL_BUDGET: Final = 95

_DIMENSIONS: Final = 256
_MANY_DIMENSIONS: Final = 1_536
_SEARCHES: Final = 40
_LIMIT: Final = 10
_INSERTS: Final = 200


async def measure(context: BenchContext) -> list[Measurement]:
    return await _measure(context, _DIMENSIONS, has_budget=True)


async def measure_large(context: BenchContext) -> list[Measurement]:
    """More than the cache of a server on SQLite has room for."""
    return await _measure(context, _MANY_DIMENSIONS, has_budget=False)


async def _measure(
    context: BenchContext, dimensions: int, *, has_budget: bool
) -> list[Measurement]:
    many = context.counts.passages
    vectors = make_vectors(many, dimensions)
    queries = make_queries(_SEARCHES, dimensions)
    is_postgres = context.postgres is not None
    budget = POSTGRES_BUDGET_MS if is_postgres else SQLITE_BUDGET_MS

    def fill(engine: object) -> None:
        fill_passages(engine, many)  # type: ignore[arg-type]  # the engine of filled_store
        fill_vectors(engine, vectors)  # type: ignore[arg-type]  # see above

    big = PassageFilter(archive_ids=ARCHIVES[:1])
    tagged = PassageFilter(archive_ids=ARCHIVES[:1], tags=(TAG,))
    small = PassageFilter(archive_ids=ARCHIVES[1:])
    kinds = {"": big, ", with a tag": tagged, ", in a small archive": small}
    async with filled_store(context, fill) as store:
        found = [
            Measurement(
                what=f"hybrid search, {many:,} passages x {dimensions:,}{what}",
                unit="ms",
                value=median(await _time_searches(store, where, queries)),
                budget=budget if has_budget else None,
            )
            for what, where in kinds.items()
        ]
        if is_postgres:
            found.append(await _measure_recall(store, vectors, queries))
        found.append(await _measure_insert(store, vectors, many))
    return found


async def _time_searches(
    store: SqlStore, where: PassageFilter, queries: Sequence[QueryVector]
) -> list[float]:
    times = []
    words = f"{MEDIUM} {list_words()[0]}"
    for query in (queries[0], *queries):
        started = time.perf_counter()
        await store.read(
            lambda tx, of=query: tx.passages.search(
                DEFAULT_ORGANIZATION_ID, where, words, _LIMIT, [of]
            )
        )  # type: ignore[misc]  # mypy does not see the default
        times.append((time.perf_counter() - started) * 1000)
    # The first one fills the cache.
    return times[1:]


async def _measure_recall(
    store: SqlStore, vectors: Matrix, queries: Sequence[QueryVector]
) -> Measurement:
    """How many of the ten nearest vectors the index finds."""
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    found = 0
    for query in queries:
        cosines = units @ np.frombuffer(query.vector.data, "<f4")
        nearest = {int(at) + 1 for at in np.argsort(-cosines)[:_LIMIT]}
        near = await store.read(
            lambda tx, of=query: tx.passages.search(
                DEFAULT_ORGANIZATION_ID, PassageFilter(), "nowhere", _LIMIT, [of]
            )  # type: ignore[misc]  # mypy does not see the default
        )
        found += len(nearest & {item.passage.position for item in near})
    share = 100 * found / (len(queries) * _LIMIT)
    return Measurement(
        what="  recall@10 of the index against exact search",
        unit="%",
        value=share,
        budget=RECALL_BUDGET,
        more_is_better=True,
    )


async def _measure_insert(store: SqlStore, vectors: Matrix, many: int) -> Measurement:
    numbers = count(many + 1)
    queries = make_queries(_INSERTS, vectors.shape[1])
    times = []
    for query in queries:
        passage = make_passage(next(numbers), list_words())

        def add(tx: Transaction, passage: object = passage) -> int:
            (stored,) = tx.passages.add([passage], model=MODEL)  # type: ignore[list-item]  # a passage
            return stored.position

        started = time.perf_counter()
        position = await store.write(add)
        embedded = [EmbeddedText(position, MODEL, query.vector)]
        await store.write(lambda tx, new=embedded: tx.passage_vectors.save(new))  # type: ignore[misc]  # mypy does not see the default
        times.append((time.perf_counter() - started) * 1000)
    return Measurement(
        what="  storing a passage and its vector there",
        unit="ms",
        value=median(times),
        budget=INSERT_BUDGET_MS,
    )
