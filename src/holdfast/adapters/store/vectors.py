"""Vectors of texts, and the texts whose vectors are still to be made. How vectors are compared is in ``vector_search``."""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Any

from msgspec.structs import replace
from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    delete,
    exists,
    func,
    insert,
    literal,
    select,
    update,
)

from holdfast.adapters.store.pgvector import PgvectorCopy
from holdfast.adapters.store.vector_tables import VectorTables
from holdfast.core.embeddings import DueText, EmbeddedText, EmbeddingProgress

# More texts that wait are not counted: "at least so many" says enough.
MAX_COUNTED = 10_000


class SqlVectors:
    """``copy``: what pgvector has, on PostgreSQL."""

    def __init__(
        self, connection: Connection, kind: VectorTables, copy: PgvectorCopy | None = None
    ) -> None:
        self._connection = connection
        self._kind = kind
        self._copy = copy

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
        self._kind.waiting_statements.insert.execute_many(self._connection, rows)

    def list_due(self, now: datetime, limit: int) -> Sequence[DueText]:
        texts, waiting = self._kind.texts, self._kind.waiting
        c = waiting.c
        own = (c.position, c.model, c.container_id, c.attempts, c.due_at)
        rows = self._connection.execute(
            select(*own, *self._kind.text_columns)
            .join(texts, texts.c.position == c.position)
            .where(c.due_at <= now)
            .order_by(c.due_at, c.position)
            .limit(limit)
        )
        return [
            DueText(
                position=row[0],
                model=row[1],
                container_id=row[2],
                attempts=row[3],
                due_at=row[4],
                text=self._kind.read_text(row[len(own) :]),
            )
            for row in rows
        ]

    def next_due_at(self, after: datetime) -> datetime | None:
        row = self._kind.waiting_statements.next_due.fetch_first(self._connection, {"after": after})
        due: datetime | None = None if row is None else row[0]
        return due

    def claim(self, due: Sequence[DueText], until: datetime) -> Sequence[DueText]:
        return [
            replace(text, attempts=text.attempts + 1, due_at=until)
            for text in due
            if self._try_claim(text, until)
        ]

    def release(self, claimed: Sequence[DueText], due_at: datetime) -> None:
        for text in claimed:
            self._kind.waiting_statements.release.execute(
                self._connection, _which(text) | {"due_at": due_at}
            )

    def record_failure(
        self, claimed: Sequence[DueText], error: str, due_at: datetime | None
    ) -> None:
        # PostgreSQL cannot store NUL, and a provider may say anything.
        values = {"due_at": due_at, "error": error.replace("\x00", "")}
        for text in claimed:
            self._kind.waiting_statements.record_failure.execute(
                self._connection, _which(text) | values
            )

    def find_dimensions(self, container_id: str, model: str) -> int | None:
        row = self._kind.vector_statements.dimensions.fetch_first(
            self._connection, {"container": container_id, "by": model}
        )
        return None if row is None else int(row[0])

    def save(self, texts: Sequence[EmbeddedText]) -> None:
        stored = []
        for text in texts:
            # First: whoever deletes the text or changes the model takes it from the same place.
            taken = self._kind.waiting_statements.take.fetch_first(
                self._connection, {"at": text.position, "by": text.model}
            )
            if taken is not None:
                stored.append((self._insert(text, taken[0]), taken[0], text))
        if self._copy is not None:
            self._copy.add(stored)

    def _insert(self, text: EmbeddedText, container_id: str) -> int:
        row = {
            "position": text.position,
            "container_id": container_id,
            "model": text.model,
            "dimensions": text.vector.dimensions,
            "vector": text.vector.data,
        }
        ((number,),) = self._kind.vector_statements.insert.fetch_all(self._connection, row)
        return int(number)

    def count_waiting(self, model: str, container_ids: Collection[str]) -> int:
        c = self._kind.waiting.c
        some = (
            select(literal(1))
            .where(c.container_id.in_(container_ids), c.model == model)
            .limit(MAX_COUNTED)
        )
        return self._connection.execute(
            select(func.count()).select_from(some.subquery())
        ).scalar_one()

    def list_missing(self, chosen: ColumnElement[bool], model: str, limit: int) -> Sequence[int]:
        """The positions of the first chosen texts that neither have a vector of the model nor wait for one."""
        return (
            self._connection.execute(
                self._select_missing(chosen, model)
                .order_by(self._kind.texts.c.position)
                .limit(limit)
            )
            .scalars()
            .all()
        )

    def schedule_missing(
        self, container_id: str, model: str, positions: Collection[int], now: datetime
    ) -> int:
        """Let vectors be made of those of the texts that are still missing; return how many they are."""
        waiting, texts = self._kind.waiting, self._kind.texts
        missing = self._select_missing(texts.c.position.in_(positions), model)
        row = (
            literal(model, waiting.c.model.type),
            literal(container_id, waiting.c.container_id.type),
            literal(0, waiting.c.attempts.type),
            literal(now, waiting.c.due_at.type),
        )
        names = ["position", "model", "container_id", "attempts", "due_at"]
        return self._connection.execute(
            insert(waiting).from_select(names, missing.add_columns(*row))
        ).rowcount

    def retry_given_up(self, container_id: str, model: str, now: datetime) -> int:
        c = self._kind.waiting.c
        return self._connection.execute(
            update(self._kind.waiting)
            .where(c.container_id == container_id, c.model == model, c.due_at.is_(None))
            .values(due_at=now)
        ).rowcount

    def delete_other_models(self, container_id: str, model: str) -> None:
        # In this order: who stores a vector at this moment has it from the texts that wait.
        for table in (self._kind.waiting, self._kind.vectors):
            self._connection.execute(
                delete(table).where(table.c.container_id == container_id, table.c.model != model)
            )

    def progress(self, chosen: ColumnElement[bool], model: str | None = None) -> EmbeddingProgress:
        """Count the texts that are chosen, by what has become of their vectors of this model, or of any."""
        texts, waiting = self._kind.texts, self._kind.waiting
        of_model = () if model is None else (waiting.c.model == model,)
        states = (
            select(
                func.max(waiting.c.attempts).label("attempts"),
                func.count(waiting.c.due_at).label("due"),
                func.max(waiting.c.error).label("error"),
            )
            .join(texts, texts.c.position == waiting.c.position)
            .where(chosen, *of_model)
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
        return EmbeddingProgress(
            total=self._count(chosen),
            embedded=self._count(chosen, self._has_vector(model)),
            untried=untried,
            failed=failed,
            given_up=given_up,
            error=error,
        )

    def list_models(self) -> Sequence[tuple[str, int]]:
        c = self._kind.vectors.c
        rows = self._connection.execute(select(c.model, c.dimensions).distinct())
        return [(row[0], row[1]) for row in rows]

    def prepare_search(self, model: str, dimensions: int) -> bool:
        return self._copy is not None and self._copy.prepare(model, dimensions)

    def _try_claim(self, text: DueText, until: datetime) -> bool:
        """Claim the text by compare-and-set: of two servers only one succeeds."""
        row = _which(text) | {"due_at": until, "attempts": text.attempts + 1}
        return self._kind.waiting_statements.claim.execute(self._connection, row) > 0

    def _select_missing(self, chosen: ColumnElement[bool], model: str) -> Select[Any]:
        texts, waiting = self._kind.texts, self._kind.waiting
        waits = exists().where(waiting.c.position == texts.c.position, waiting.c.model == model)
        return select(texts.c.position).where(chosen, ~self._has_vector(model), ~waits)

    def _has_vector(self, model: str | None) -> ColumnElement[bool]:
        vectors = self._kind.vectors
        of_model = () if model is None else (vectors.c.model == model,)
        return exists().where(vectors.c.position == self._kind.texts.c.position, *of_model)

    def _count(self, *conditions: ColumnElement[bool]) -> int:
        return self._connection.execute(
            select(func.count()).select_from(self._kind.texts).where(*conditions)
        ).scalar_one()


def _which(text: DueText) -> dict[str, Any]:
    return {
        "at": text.position,
        "by": text.model,
        "seen": text.attempts,
        "was_due": text.due_at,
    }


def _count_if(condition: ColumnElement[bool]) -> ColumnElement[Any]:
    return func.count().filter(condition)
