"""The tables of the index of words: FTS5 on SQLite, ``tsvector`` on PostgreSQL. Not in the metadata of the other tables,
since they differ. Each row belongs to a row of the indexed table by its position."""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection

# The indexed tables, and their indexes.
INDEX_NAMES: Final = {"messages": "message_index", "passages": "passage_index"}

_FTS5: Final = (
    # The terms are made by ``core.search``. They are separated by spaces, and this tokenizer takes all other characters of a
    # term as they are. Without positions (detail), which nobody asks for, the index is smaller.
    "CREATE VIRTUAL TABLE {index} USING fts5(terms, tokenize='ascii', detail=none)",
    # To delete from FTS5 takes long, and with an agent a hundred thousand messages may go: ``engine.search_upkeep`` does it
    # a few at a time. Until then nothing finds these rows, because a search joins the indexed table.
    """CREATE TRIGGER {table}_unindex AFTER DELETE ON {table} BEGIN
    INSERT OR IGNORE INTO index_removals VALUES ('{index}', old.position); END""",
)
_REMOVALS: Final = (
    "CREATE TABLE index_removals (index_name TEXT NOT NULL, position INTEGER NOT NULL, "
    "PRIMARY KEY (index_name, position)) WITHOUT ROWID"
)
_TSVECTOR: Final = (
    """CREATE TABLE {index} (position bigint PRIMARY KEY REFERENCES {table} (position) ON DELETE CASCADE,
    terms tsvector NOT NULL)""",
    # A short list of pending entries: a search reads all of it.
    "CREATE INDEX ix_{index}_terms ON {index} USING gin (terms) WITH (gin_pending_list_limit = 256)",
)


def create_search_tables(connection: Connection) -> None:
    """Create the empty indexes."""
    for statement in _list_statements(connection.dialect.name):
        connection.exec_driver_sql(statement)


def _list_statements(dialect: str) -> Sequence[str]:
    is_sqlite = dialect == "sqlite"
    templates = _FTS5 if is_sqlite else _TSVECTOR
    created = [_REMOVALS] if is_sqlite else []
    return created + [
        template.format(table=table, index=index)
        for table, index in INDEX_NAMES.items()
        for template in templates
    ]
