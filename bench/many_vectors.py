"""Vectors for the passages of ``many_texts``, written past the use cases. They lie in clusters, as those of texts do."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, Engine, insert, select, text, update

from bench.many_texts import ARCHIVES, SMALL_EVERY
from holdfast.adapters.store import tables
from holdfast.adapters.store.pgvector import PgvectorCopy, index_name
from holdfast.adapters.store.vector_tables import PASSAGE_VECTORS
from holdfast.core.embeddings import QueryVector, Vector

MODEL: Final = "bench/clusters"
_CLUSTERS: Final = 1_000
# How far vectors are from the middle of their cluster, compared with the distance of two middles.
_SPREAD: Final = 0.6
_BATCH: Final = 5_000

Matrix = NDArray[np.float32]


def make_vectors(count: int, dimensions: int, seed: int = 1) -> Matrix:
    random = np.random.default_rng(seed)
    middles = np.random.default_rng(0).standard_normal((_CLUSTERS, dimensions), np.float32)
    chosen = middles[random.integers(_CLUSTERS, size=count)]
    return chosen + _SPREAD * random.standard_normal((count, dimensions), np.float32)


def make_queries(count: int, dimensions: int) -> Sequence[QueryVector]:
    found = make_vectors(count, dimensions, seed=2)
    return [QueryVector(MODEL, Vector(row.astype("<f4").tobytes())) for row in found]


def fill_vectors(engine: Engine, vectors: Matrix) -> None:
    """Write one vector for each passage."""
    with engine.begin() as connection:
        connection.execute(update(tables.archives).values(embedding=MODEL))
        for start in range(0, len(vectors), _BATCH):
            rows = [
                _row(start + at + 1, row) for at, row in enumerate(vectors[start : start + _BATCH])
            ]
            connection.execute(insert(tables.passage_vectors), rows)
    if engine.dialect.name == "postgresql":
        _copy(engine, vectors)


def _row(position: int, vector: Any) -> dict[str, Any]:
    return {
        "position": position,
        "container_id": ARCHIVES[position % SMALL_EVERY == 0],
        "model": MODEL,
        "dimensions": len(vector),
        "vector": vector.astype("<f4").tobytes(),
    }


def _copy(engine: Engine, vectors: Matrix) -> None:
    """What the server does in the background, vector by vector, in one go."""
    dimensions = vectors.shape[1]
    with engine.begin() as connection:
        PgvectorCopy(connection, PASSAGE_VECTORS).prepare(MODEL, dimensions)
        _copy_rows(connection, vectors)
        connection.execute(text("SET LOCAL maintenance_work_mem = '2GB'"))
        copy = PASSAGE_VECTORS.copy_name
        connection.execute(
            text(
                f"CREATE INDEX {index_name(PASSAGE_VECTORS, MODEL, dimensions)} ON {copy} USING hnsw "
                f"((vector::vector({dimensions})) vector_cosine_ops) "
                f"WHERE model = '{MODEL}' AND dimensions = {dimensions}"
            )
        )
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("VACUUM ANALYZE"))


def _copy_rows(connection: Connection, vectors: Matrix) -> None:
    c = tables.passage_vectors.c
    stored = connection.execute(select(c.number, c.position, c.container_id)).all()
    cursor: Any = connection.connection.cursor()
    names = "number, position, container_id, model, dimensions, vector"
    with cursor.copy(f"COPY {PASSAGE_VECTORS.copy_name} ({names}) FROM STDIN") as target:
        for number, position, container_id in stored:
            vector = vectors[position - 1]
            numbers = f"[{','.join(map(str, vector.tolist()))}]"
            target.write_row((number, position, container_id, MODEL, len(vector), numbers))
