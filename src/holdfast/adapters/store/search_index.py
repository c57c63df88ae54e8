"""The upkeep of the index of words: what was stored without it, and what is deleted."""

from collections.abc import Sequence
from typing import Final

import msgspec
from sqlalchemy import Connection, func, select
from sqlalchemy.dialects.postgresql import insert as insert_postgresql
from sqlalchemy.dialects.sqlite import insert as insert_sqlite

from holdfast.adapters.store import tables
from holdfast.adapters.store.messages import MESSAGE, index_entries
from holdfast.adapters.store.word_index import IndexEntry, WordIndex
from holdfast.core.index_check import IndexCheck
from holdfast.core.message_search import SEARCHABLE_ROLES

_messages = tables.messages
_facts = tables.deployment

# Where the table ``deployment`` has it.
CHECK_KEY: Final = "message_index_check"
# A batch ends when so much text is indexed: some milliseconds, in which no other transaction of SQLite can write.
_MAX_BATCH_CHARS: Final = 10_000


class SqlSearchIndex:
    """``indexes``: of all tables, that of the messages first."""

    def __init__(self, connection: Connection, indexes: Sequence[WordIndex]) -> None:
        self._connection = connection
        self._indexes = indexes
        is_sqlite = connection.dialect.name == "sqlite"
        self._insert = insert_sqlite if is_sqlite else insert_postgresql

    def has_deleted(self) -> bool:
        return any(index.has_deleted() for index in self._indexes)

    def remove_deleted(self, limit: int) -> int:
        # One index at a time: then none of them waits for the other.
        return next((count for index in self._indexes if (count := index.remove_deleted(limit))), 0)

    def load_check(self) -> IndexCheck:
        stored = select(_facts.c.value).where(_facts.c.key == CHECK_KEY)
        found = self._connection.execute(stored).scalar()
        return IndexCheck() if found is None else msgspec.json.decode(found, type=IndexCheck)

    def lock_check(self) -> IndexCheck:
        # A row must be there to be locked.
        row = {"key": CHECK_KEY, "value": _encode(IndexCheck())}
        locked = (
            self._insert(_facts)
            .values(row)
            .on_conflict_do_update(index_elements=["key"], set_={"value": _facts.c.value})
            .returning(_facts.c.value)
        )
        return msgspec.json.decode(self._connection.execute(locked).scalar_one(), type=IndexCheck)

    def save_check(self, check: IndexCheck) -> None:
        changed = _facts.update().where(_facts.c.key == CHECK_KEY)
        self._connection.execute(changed.values(value=_encode(check)))

    def last_message(self) -> int:
        return self._connection.execute(select(func.max(_messages.c.position))).scalar() or 0

    def index_missing_messages(
        self, *, bottom: int, below: int, limit: int
    ) -> tuple[int, int | None]:
        rows = self._connection.execute(
            select(*MESSAGE.columns)
            .where(
                _messages.c.position > bottom,
                _messages.c.position < below,
                _messages.c.role.in_(SEARCHABLE_ROLES),
            )
            .order_by(_messages.c.position.desc())
            .limit(limit)
            # They must not be deleted before this transaction ends: their rows of the index refer to them.
            .with_for_update(read=True, key_share=True)
        ).all()
        missing = self._indexes[0].find_missing([row.position for row in rows])
        entries: list[IndexEntry] = []
        chars = 0
        for row in rows:
            if row.position in missing:
                found = list(index_entries([MESSAGE.from_row(row)]))
                entries += found
                chars += sum(len(entry.text) for entry in found)
            if chars > _MAX_BATCH_CHARS:
                break
        is_end = chars <= _MAX_BATCH_CHARS and len(rows) < limit
        self._indexes[0].add(entries)
        return len(entries), None if is_end else row.position


def _encode(check: IndexCheck) -> str:
    return msgspec.json.encode(check).decode()
