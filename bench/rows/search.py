"""Search by words in the store: an archive with 100,000 passages, and on request a million messages; how well words find; and
what storing a passage takes. Without HTTP, which costs the same for all requests."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import count
from typing import Any

from sqlalchemy import create_engine, make_url

from bench.context import BenchContext, Home
from bench.many_texts import (
    AGENTS,
    ARCHIVES,
    FIRST_AT,
    FREQUENT,
    MEDIUM,
    RARE,
    TAG,
    fill_messages,
    fill_passages,
    list_words,
    make_passage,
)
from bench.measurements import Measurement, median
from bench.relevance.stored_search import StoredRelevance
from holdfast.adapters.embedder.router import EmbedderRouter
from holdfast.adapters.models.accounts import ProviderSettings
from holdfast.adapters.store.cipher import FernetCipher
from holdfast.adapters.store.factory import open_store
from holdfast.adapters.store.sql_store import SqlStore
from holdfast.core.ids import DEFAULT_ORGANIZATION_ID
from holdfast.core.message_search import MessageFilter
from holdfast.core.messages import Role
from holdfast.core.passages import PassageFilter

ORG = DEFAULT_ORGANIZATION_ID
LOCAL_MODEL = "local/all-minilm-l6-v2"
PASSAGE_BUDGET_MS = 15
PASSAGE_BUDGET_MS_POSTGRES = 25
INSERT_BUDGET_MS = 5
MESSAGE_BUDGET_MS = 30

_REPEATED = 15
_LIMIT = 10
_INSERTS = 200

Ask = Callable[[], Awaitable[Any]]


async def measure(context: BenchContext) -> list[Measurement]:
    many = context.counts.passages
    async with filled_store(context, lambda engine: fill_passages(engine, many)) as store:
        is_postgres = context.postgres is not None
        budget = PASSAGE_BUDGET_MS_POSTGRES if is_postgres else PASSAGE_BUDGET_MS
        found = [
            await _measure(f"  {what}", _passage_search(store, where, query), budget)
            for what, (where, query) in _passage_searches(many).items()
        ]
        inserted = await _measure_insert(store, many)
    headline = f"search in an archive with {many:,} passages: p50 of {len(found)} kinds"
    values = sorted(measurement.value for measurement in found)
    return [
        Measurement(what=headline, unit="ms", value=median(values), budget=budget),
        *found,
        inserted,
        *await _measure_relevance(context),
    ]


async def measure_messages(context: BenchContext) -> list[Measurement]:
    many = context.counts.messages
    async with filled_store(context, lambda engine: fill_messages(engine, many)) as store:
        found = [
            await _measure(f"  {what}", _message_search(store, where, query), MESSAGE_BUDGET_MS)
            for what, (where, query) in _message_searches(many).items()
        ]
    headline = f"search in {many:,} messages: p50 of {len(found)} kinds"
    values = sorted(measurement.value for measurement in found)
    return [
        Measurement(what=headline, unit="ms", value=median(values), budget=MESSAGE_BUDGET_MS),
        *found,
    ]


def _queries() -> dict[str, str]:
    words = list_words()
    return {
        "a rare word": RARE,
        "a word of one text in a hundred": MEDIUM,
        "a word of every text": FREQUENT,
        "these three": f"{RARE} {MEDIUM} {FREQUENT}",
        "a sentence": " ".join(words[:12]),
        "a word that is not there": "nowhere",
    }


def _passage_searches(many: int) -> dict[str, tuple[PassageFilter, str]]:
    queries = _queries()
    big = PassageFilter(archive_ids=ARCHIVES[:1])
    small = PassageFilter(archive_ids=ARCHIVES[1:])
    tagged = PassageFilter(archive_ids=ARCHIVES[:1], tags=(TAG,))
    late = PassageFilter(archive_ids=ARCHIVES[:1], since=FIRST_AT + timedelta(seconds=many * 0.9))
    sentence = queries["a sentence"]
    return {
        **{what: (big, query) for what, query in queries.items()},
        "a sentence, in both archives": (PassageFilter(archive_ids=ARCHIVES), sentence),
        "a sentence, in all archives": (PassageFilter(), sentence),
        "a sentence, in a small archive": (small, sentence),
        "a word of every text, in a small archive": (small, FREQUENT),
        "a sentence, with a tag": (tagged, sentence),
        "a word of every text, with a tag": (tagged, FREQUENT),
        "a sentence, of the last tenth": (late, sentence),
    }


def _message_searches(many: int) -> dict[str, tuple[MessageFilter, str]]:
    queries = _queries()
    busy, quiet = (MessageFilter(agent_id=agent_id) for agent_id in AGENTS)
    users = MessageFilter(agent_id=AGENTS[0], roles=(Role.USER,))
    late = MessageFilter(agent_id=AGENTS[0], since=FIRST_AT + timedelta(seconds=many * 0.9))
    sentence = queries["a sentence"]
    return {
        **{what: (busy, query) for what, query in queries.items()},
        "a sentence, of all agents": (MessageFilter(), sentence),
        "a sentence, of a quiet agent": (quiet, sentence),
        "a word of every text, of a quiet agent": (quiet, FREQUENT),
        "a sentence, of the user": (users, sentence),
        "a sentence, of the last tenth": (late, sentence),
    }


def _passage_search(store: SqlStore, where: PassageFilter, query: str) -> Ask:
    return lambda: store.read(lambda tx: tx.passages.search(ORG, where, query, _LIMIT))


def _message_search(store: SqlStore, where: MessageFilter, query: str) -> Ask:
    return lambda: store.read(lambda tx: tx.messages.search(ORG, where, query, _LIMIT))


async def _measure(what: str, ask: Ask, budget: float) -> Measurement:
    await ask()
    return Measurement(
        what=what,
        unit="ms",
        value=median([await _time(ask) for _ in range(_REPEATED)]),
        budget=budget,
    )


async def _time(ask: Ask) -> float:
    started = time.perf_counter()
    await ask()
    return (time.perf_counter() - started) * 1000


async def _measure_insert(store: SqlStore, many: int) -> Measurement:
    numbers = count(many + 1)

    async def insert() -> None:
        passage = make_passage(next(numbers), list_words())
        await store.write(lambda tx: tx.passages.add([passage]))

    times = [await _time(insert) for _ in range(_INSERTS)]
    return Measurement(
        what="storing a passage there", unit="ms", value=median(times), budget=INSERT_BUDGET_MS
    )


async def _measure_relevance(context: BenchContext) -> list[Measurement]:
    """How many of the answers of ``bench/relevance`` are among the best ten: by words, and with the local model if it is
    installed (docs/embeddings.md) also by vectors."""
    router = EmbedderRouter(ProviderSettings())
    embedder = router if router.is_configured(LOCAL_MODEL) else None
    async with filled_store(context, lambda _: None) as store:
        relevance = StoredRelevance(store, embedder, LOCAL_MODEL if embedder else "")
        measured = await relevance.measure()
    await router.aclose()
    return [
        Measurement(what=f"recall@10 by {kind}, {language}", unit="%", value=share * 100)
        for kind, shares in measured.items()
        for language, share in shares.items()
    ]


@asynccontextmanager
async def filled_store(
    context: BenchContext, fill: Callable[[Any], None]
) -> AsyncIterator[SqlStore]:
    url = _url(context.new_home())
    cipher = FernetCipher("a key for the bench")
    await (await open_store(url, cipher=cipher)).close()
    engine = create_engine(make_url(url.replace("postgresql://", "postgresql+psycopg://", 1)))
    fill(engine)
    engine.dispose()
    store = await open_store(url, cipher=cipher)
    try:
        yield store
    finally:
        await store.close()


def _url(home: Home) -> str:
    return home.database_url or f"sqlite:///{home.folder}/holdfast.db"
