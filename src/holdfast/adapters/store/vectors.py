"""Vectors of texts, and the texts whose vectors are still to be made. Searching them is in ``vector_search``."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final

from msgspec import Struct
from sqlalchemy import ColumnElement, Connection, Table, exists, func, insert, select

from holdfast.adapters.store import tables
from holdfast.adapters.store.prepared_statement import PreparedStatement
from holdfast.core.embeddings import EmbeddingProgress


class VectorTables(Struct, frozen=True):
    """The texts of one kind, their vectors, and those that wait for a vector."""

    texts: Table
    vectors: Table
    waiting: Table
    insert_waiting: PreparedStatement


PASSAGE_VECTORS: Final = VectorTables(
    tables.passages,
    tables.passage_vectors,
    tables.passages_to_embed,
    PreparedStatement(insert(tables.passages_to_embed)),
)
MESSAGE_VECTORS: Final = VectorTables(
    tables.messages,
    tables.message_vectors,
    tables.messages_to_embed,
    PreparedStatement(insert(tables.messages_to_embed)),
)


class SqlVectors:
    def __init__(self, connection: Connection, kind: VectorTables) -> None:
        self._connection = connection
        self._kind = kind

    def schedule(self, model: str, texts: Iterable[tuple[int, str, datetime]]) -> None:
        """Let vectors be made of new texts: their position, container, and when the first attempt may begin."""
        rows = [
            {
                "position": position,
                "model": model,
                "container_id": container_id,
                "attempts": 0,
                "due_at": due_at,
                "error": None,
            }
            for position, container_id, due_at in texts
        ]
        self._kind.insert_waiting.execute_many(self._connection, rows)

    def progress(self, chosen: ColumnElement[bool]) -> EmbeddingProgress:
        """Count the texts that are chosen. One that waits for vectors of several models counts once."""
        texts, vectors, waiting = self._kind.texts, self._kind.vectors, self._kind.waiting
        states = (
            select(
                func.max(waiting.c.attempts).label("attempts"),
                func.count(waiting.c.due_at).label("due"),
                func.max(waiting.c.error).label("error"),
            )
            .join(texts, texts.c.position == waiting.c.position)
            .where(chosen)
            .group_by(waiting.c.position)
            .subquery()
        )
        untried, failed, given_up, error = self._connection.execute(
            select(
                _count_if(states.c.attempts == 0),
                _count_if(states.c.attempts > 0),
                _count_if(states.c.due == 0),
                func.max(states.c.error),
            )
        ).one()
        has_vector = exists().where(vectors.c.position == texts.c.position)
        return EmbeddingProgress(
            total=self._count(chosen),
            embedded=self._count(chosen, has_vector),
            untried=untried,
            failed=failed,
            given_up=given_up,
            error=error,
        )

    def _count(self, *conditions: ColumnElement[bool]) -> int:
        return self._connection.execute(
            select(func.count()).select_from(self._kind.texts).where(*conditions)
        ).scalar_one()


def _count_if(condition: ColumnElement[bool]) -> ColumnElement[Any]:
    return func.count().filter(condition)
