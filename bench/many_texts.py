"""A store with many passages and messages, written past the use cases. Their words are as frequent as those of a language, a
few of them are known by name, and one archive and one agent have nearly all of the texts."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import accumulate, cycle, islice
from random import Random
from typing import Any, Final

from sqlalchemy import Connection, Engine, Table, insert, text

from holdfast.adapters.store import tables
from holdfast.adapters.store.archives import ARCHIVE
from holdfast.adapters.store.fts5_index import Fts5Index
from holdfast.adapters.store.messages import MESSAGE
from holdfast.adapters.store.passages import PASSAGE
from holdfast.adapters.store.tsvector_index import TsvectorIndex
from holdfast.adapters.store.word_index import IndexEntry
from holdfast.core.archives import Archive
from holdfast.core.ids import DEFAULT_ORGANIZATION_ID
from holdfast.core.messages import Message, Role, Text
from holdfast.core.passages import Passage

# The creation time of the first text; one more each second after it.
FIRST_AT: Final = datetime(2026, 1, 1, tzinfo=UTC)
# Nearly all texts belong to the first one; one of SMALL_EVERY belongs to the second one.
ARCHIVES: Final = (
    "archive-00000000-0000-4000-8000-100000000001",
    "archive-00000000-0000-4000-8000-100000000002",
)
AGENTS: Final = (
    "agent-00000000-0000-4000-8000-200000000001",
    "agent-00000000-0000-4000-8000-200000000002",
)
SMALL_EVERY: Final = 500
# One passage of fifty has it.
TAG: Final = "travel"
TAG_EVERY: Final = 50

# A word in each text, in one of about a hundred, and in one of about ten thousand. The numbers have no common factor with
# those above.
FREQUENT: Final = "everywhere"
MEDIUM: Final = "sometimes"
RARE: Final = "seldom"
_EVERY: Final = {FREQUENT: 1, MEDIUM: 101, RARE: 9_973}

_VOCABULARY: Final = 50_000
_WORDS: Final = 40
# So many different texts; the known words are added to them.
_TEXTS: Final = 20_000
_BATCH: Final = 5_000


def fill_passages(engine: Engine, count: int) -> None:
    """Write the archives and so many passages to a new store."""
    with engine.begin() as connection, _without_index(connection, "passage_index"):
        _add_archives(connection)
        index = _open_index(connection, "passage_index")
        for batch in _batches(map(make_passage, range(1, count + 1), _texts())):
            _insert(connection, tables.passages, [PASSAGE.to_row(item) for item in batch])
            tags = [
                {"passage_id": item.id, "archive_id": item.archive_id, "tag": tag}
                for item in batch
                for tag in item.tags
            ]
            _insert(connection, tables.passage_tags, tags)
            index.add([IndexEntry(p.position, (p.container_id,), p.text) for p in batch])
    _update_statistics(engine)


def fill_messages(engine: Engine, count: int) -> None:
    """Write the agents and so many messages to a new store."""
    owner = {"organization_id": DEFAULT_ORGANIZATION_ID}
    with engine.begin() as connection, _without_index(connection, "message_index"):
        _add_agents(connection)
        index = _open_index(connection, "message_index")
        for batch in _batches(map(_message, range(1, count + 1), _texts())):
            rows = [MESSAGE.to_row(item) | owner for item in batch]
            _insert(connection, tables.messages, rows)
            index.add([IndexEntry(m.position, (m.agent_id, m.thread_id), m.text) for m in batch])
    _update_statistics(engine)


def list_words() -> Sequence[str]:
    """The words of the first text."""
    return next(_texts())


def _write_text(words: Sequence[str], number: int) -> str:
    """The words, and the known ones that the text with this number has."""
    known = [word for word, every in _EVERY.items() if number % every == 0]
    return " ".join([*words, *known])


def _texts() -> Iterator[Sequence[str]]:
    """The words of texts without end."""
    return cycle(_make_texts())


@cache
def _make_texts() -> Sequence[Sequence[str]]:
    """Texts whose words are as frequent as those of a language."""
    random = Random(5)
    syllables = [a + b for a in "bdfgklmnprstvz" for b in "aeiou"]
    vocabulary = [
        "".join(random.choices(syllables, k=random.randint(1, 4))) for _ in range(_VOCABULARY)
    ]
    weights = list(accumulate(1 / rank for rank in range(1, _VOCABULARY + 1)))
    return [random.choices(vocabulary, cum_weights=weights, k=_WORDS) for _ in range(_TEXTS)]


def make_passage(number: int, words: Sequence[str]) -> Passage:
    created_at = FIRST_AT + timedelta(seconds=number)
    return Passage(
        id=f"passage-00000000-0000-4000-8000-{number:012}",
        organization_id=DEFAULT_ORGANIZATION_ID,
        text=_write_text(words, number),
        created_at=created_at,
        updated_at=created_at,
        archive_id=ARCHIVES[number % SMALL_EVERY == 0],
        tags=(TAG,) if number % TAG_EVERY == 0 else (),
        position=number,
    )


def _message(number: int, words: Sequence[str]) -> Message:
    agent_id = AGENTS[number % SMALL_EVERY == 0]
    return Message(
        id=f"message-00000000-0000-4000-8000-{number:012}",
        agent_id=agent_id,
        thread_id=agent_id,
        role=Role.ASSISTANT if number % 2 else Role.USER,
        created_at=FIRST_AT + timedelta(seconds=number),
        content=(Text(_write_text(words, number)),),
        position=number,
    )


def _batches(items: Iterable[Any]) -> Iterator[list[Any]]:
    waiting = iter(items)
    while batch := list(islice(waiting, _BATCH)):
        yield batch


def _insert(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert the rows. The positions that a new store gives them are those that they have already."""
    without_position = [
        {name: value for name, value in row.items() if name != "position"} for row in rows
    ]
    if without_position:
        connection.execute(insert(table), without_position)


def _open_index(connection: Connection, name: str) -> Fts5Index | TsvectorIndex:
    is_sqlite = connection.dialect.name == "sqlite"
    return Fts5Index(connection, name) if is_sqlite else TsvectorIndex(connection, name)


@contextmanager
def _without_index(connection: Connection, name: str) -> Iterator[None]:
    """On PostgreSQL it is faster to create the index of all terms afterwards."""
    if connection.dialect.name == "sqlite":
        yield
        return
    found = text("SELECT indexdef FROM pg_indexes WHERE indexname = :name")
    definition = connection.execute(found, {"name": f"ix_{name}_terms"}).scalar_one()
    connection.execute(text(f"DROP INDEX ix_{name}_terms"))
    yield
    connection.execute(text(definition))


def _update_statistics(engine: Engine) -> None:
    if engine.dialect.name == "postgresql":
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("VACUUM ANALYZE"))


def _add_archives(connection: Connection) -> None:
    archives = [
        Archive(
            id=archive_id,
            organization_id=DEFAULT_ORGANIZATION_ID,
            name=archive_id,
            created_at=FIRST_AT,
            updated_at=FIRST_AT,
        )
        for archive_id in ARCHIVES
    ]
    connection.execute(insert(tables.archives), [ARCHIVE.to_row(archive) for archive in archives])


def _add_agents(connection: Connection) -> None:
    moment = {"created_at": FIRST_AT, "updated_at": FIRST_AT}
    owned = {"organization_id": DEFAULT_ORGANIZATION_ID, **moment, "body": "{}"}
    connection.execute(
        insert(tables.agents), [{"id": agent_id, "name": agent_id, **owned} for agent_id in AGENTS]
    )
    connection.execute(
        insert(tables.threads),
        [{"id": agent_id, "agent_id": agent_id, **owned} for agent_id in AGENTS],
    )
