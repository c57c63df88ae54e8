"""The tables of vectors, one set for passages and one for messages, with what is executed for each text."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from sqlalchemy import (
    Column,
    Table,
    bindparam,
    delete,
    func,
    insert,
    select,
    update,
)

from holdfast.adapters.store import tables
from holdfast.adapters.store.prepared_statement import PreparedStatement
from holdfast.adapters.store.row_mapper import RowMapper
from holdfast.core.message_search import searchable_text
from holdfast.core.messages import Message

_MESSAGE: Final = RowMapper(Message, tables.messages)


class WaitingStatements:
    """What is executed for each text that waits for a vector."""

    def __init__(self, waiting: Table) -> None:
        this = (waiting.c.position == bindparam("at"), waiting.c.model == bindparam("by"))
        as_seen = update(waiting).where(
            *this,
            waiting.c.attempts == bindparam("seen"),
            waiting.c.due_at == bindparam("was_due"),
        )
        self.insert = PreparedStatement(insert(waiting))
        self.take = PreparedStatement(
            delete(waiting).where(*this).returning(waiting.c.container_id)
        )
        self.claim = PreparedStatement(as_seen, columns=("due_at", "attempts"))
        self.release = PreparedStatement(as_seen, columns=("due_at",))
        self.record_failure = PreparedStatement(as_seen, columns=("due_at", "error"))
        self.next_due = PreparedStatement(
            select(func.min(waiting.c.due_at, type_=waiting.c.due_at.type)).where(
                waiting.c.due_at > bindparam("after")
            )
        )


class VectorStatements:
    """What is executed for each vector, and to read those of a container."""

    def __init__(self, vectors: Table) -> None:
        self.insert = PreparedStatement(
            insert(vectors).returning(vectors.c.number),
            columns=("position", "container_id", "model", "dimensions", "vector"),
        )
        of_model = (
            vectors.c.container_id == bindparam("container"),
            vectors.c.model == bindparam("by"),
        )
        self.dimensions = PreparedStatement(select(vectors.c.dimensions).where(*of_model).limit(1))
        alike = (*of_model, vectors.c.dimensions == bindparam("length"))
        self.count = PreparedStatement(select(func.count()).select_from(vectors).where(*alike))
        self.read = PreparedStatement(
            select(vectors.c.number, vectors.c.vector)
            .where(*alike, vectors.c.number > bindparam("after"))
            .order_by(vectors.c.number)
            .limit(bindparam("most"))
        )


class VectorTables:
    """The texts of one kind, their vectors, and those that wait for a vector. ``read_text`` makes the text of the columns
    ``text_columns``. ``copy_name``: the table of pgvector's copy of the vectors."""

    def __init__(
        self,
        texts: Table,
        vectors: Table,
        waiting: Table,
        *,
        text_columns: Sequence[Column[Any]],
        read_text: Callable[[Sequence[Any]], str],
    ) -> None:
        self.texts = texts
        self.vectors = vectors
        self.waiting = waiting
        self.text_columns = tuple(text_columns)
        self.read_text = read_text
        self.copy_name = f"{vectors.name}_copy"
        self.waiting_statements = WaitingStatements(waiting)
        self.vector_statements = VectorStatements(vectors)


PASSAGE_VECTORS: Final = VectorTables(
    tables.passages,
    tables.passage_vectors,
    tables.passages_to_embed,
    text_columns=(tables.passages.c.text,),
    read_text=lambda row: row[0],
)
MESSAGE_VECTORS: Final = VectorTables(
    tables.messages,
    tables.message_vectors,
    tables.messages_to_embed,
    text_columns=_MESSAGE.columns,
    read_text=lambda row: searchable_text(_MESSAGE.from_row(row)),
)
