"""pgvector: used where it is, not missed where it is not, and nothing is lost when it comes or goes."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from random import Random

import psycopg
import pytest
from sqlalchemy import make_url
from tests.support.pgbouncer import PGBOUNCER_PROBLEM, run_pgbouncer
from tests.support.stored_vectors import MODEL, add_with_vectors, prepare_search, query_vector
from tests.support.values import Make

from holdfast.adapters.store import pgvector
from holdfast.adapters.store.cipher import Cipher
from holdfast.adapters.store.doctor_checks import check_vectors
from holdfast.adapters.store.postgres import PostgresStore
from holdfast.core.archives import Archive
from holdfast.core.ids import DEFAULT_ORGANIZATION_ID
from holdfast.core.passages import PassageFilter
from holdfast.ports.doctor_check import Verdict
from holdfast.ports.store import Store

pytestmark = pytest.mark.slow
needs_pgbouncer = pytest.mark.skipif(bool(PGBOUNCER_PROBLEM), reason=str(PGBOUNCER_PROBLEM))

ORG = DEFAULT_ORGANIZATION_ID
DIMENSIONS = 16


@pytest.fixture
async def store(blank_postgres_url: str, cipher: Cipher) -> AsyncIterator[PostgresStore]:
    opened = await PostgresStore.open(blank_postgres_url, cipher=cipher)
    yield opened
    await opened.close()


@pytest.fixture
def always_index(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also a small archive is searched with the index."""
    monkeypatch.setattr(pgvector, "_FEW_NUMBERS", 0)


def execute(url: str, *statements: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def make_vectors(count: int, dimensions: int = DIMENSIONS, seed: int = 1) -> list[list[float]]:
    """In clusters, as vectors of texts are."""
    random = Random(seed)
    middles = [[random.gauss() for _ in range(dimensions)] for _ in range(20)]
    return [
        [number + random.gauss() / 3 for number in random.choice(middles)] for _ in range(count)
    ]


async def add_archive(store: Store, make: Make) -> Archive:
    archive = make.archive(embedding=MODEL)
    await store.write(lambda tx: tx.archives.add(archive))
    return archive


async def fill(store: Store, make: Make, vectors: list[list[float]]) -> Archive:
    archive = await add_archive(store, make)
    passages = [make.passage(archive, f"p{number}") for number in range(len(vectors))]
    await add_with_vectors(store, passages, vectors)
    return archive


async def find(store: Store, numbers: list[float], limit: int = 10, **where: object) -> list[str]:
    chosen = PassageFilter(**where)  # type: ignore[arg-type]  # as the test gives them
    found = await store.read(
        lambda tx: tx.passages.search(ORG, chosen, "zzz", limit, [query_vector(*numbers)])
    )
    return [item.passage.text for item in found]


def explain(url: str, dimensions: int = DIMENSIONS) -> str:
    """Whether PostgreSQL uses the index for the query of a search."""
    numbers = f"[{','.join(['1'] * dimensions)}]"
    kind = "vector" if dimensions <= pgvector.MAX_FULL_DIMENSIONS else "halfvec"
    rows = execute(
        url,
        "SET enable_seqscan = off",
        "SET enable_sort = off",
        f"EXPLAIN SELECT position FROM passage_vectors_copy WHERE model = '{MODEL}' AND dimensions = {dimensions} "
        f"ORDER BY (vector::{kind}({dimensions})) <=> '{numbers}' LIMIT 10",
    )
    return "\n".join(str(row[0]) for row in rows)


async def test_two_that_prepare_the_search_at_the_same_moment_do_not_disturb_each_other(
    store: PostgresStore, make: Make
) -> None:
    vectors = make_vectors(300)
    await fill(store, make, vectors)

    await asyncio.gather(*(prepare_search(store, MODEL, DIMENSIONS) for _ in range(4)))

    assert await find(store, vectors[7], limit=1) == ["p7"]


@pytest.mark.usefixtures("always_index")
async def test_the_index_finds_nearly_all_that_an_exact_search_finds(
    store: PostgresStore, make: Make, blank_postgres_url: str
) -> None:
    vectors = make_vectors(3_000)
    queries = make_vectors(20, seed=2)
    await fill(store, make, vectors)
    exact = [await find(store, query) for query in queries]

    await prepare_search(store, MODEL, DIMENSIONS)

    assert "hnsw" in str(execute(blank_postgres_url, "SELECT indexdef FROM pg_indexes")).lower()
    assert f"ix_passage_vectors_copy_{DIMENSIONS}" in explain(blank_postgres_url)
    found = [await find(store, query) for query in queries]
    shared = [len(set(a) & set(b)) for a, b in zip(exact, found, strict=True)]
    assert sum(shared) >= 0.95 * 10 * len(queries)


@pytest.mark.usefixtures("always_index")
async def test_a_filter_leaves_as_many_as_are_wanted(store: PostgresStore, make: Make) -> None:
    """The tagged passages are far away: the index would look through all others first."""
    archive = await fill(store, make, make_vectors(500))
    far = [make.passage(archive, f"far{number}", tags=("rare",)) for number in range(3)]
    await add_with_vectors(store, far, [[-9.0] * DIMENSIONS] * 3)
    await prepare_search(store, MODEL, DIMENSIONS)

    assert len(await find(store, [1.0] * DIMENSIONS, tags=("rare",))) == 3


@pytest.mark.parametrize(("dimensions", "kind"), [(2_000, "vector"), (2_001, "halfvec")])
@pytest.mark.usefixtures("always_index")
async def test_long_vectors_are_indexed_with_two_bytes_a_number(
    store: PostgresStore, make: Make, blank_postgres_url: str, dimensions: int, kind: str
) -> None:
    vectors = make_vectors(5, dimensions)
    await fill(store, make, vectors)
    await prepare_search(store, MODEL, dimensions)

    assert f"ix_passage_vectors_copy_{dimensions}" in explain(blank_postgres_url, dimensions)
    (index,) = execute(
        blank_postgres_url,
        f"SELECT indexdef FROM pg_indexes WHERE indexname LIKE '%copy_{dimensions}_%'",
    )
    assert f"{kind}({dimensions})" in str(index)
    assert (await find(store, vectors[3]))[0] == "p3"


async def test_still_longer_vectors_are_compared_one_by_one(
    store: PostgresStore, make: Make
) -> None:
    vectors = make_vectors(5, 4_001)
    await fill(store, make, vectors)
    await prepare_search(store, MODEL, 4_001)

    assert (await find(store, vectors[3]))[0] == "p3"


async def test_vectors_from_before_the_extension_are_copied(
    store: PostgresStore, make: Make, blank_postgres_url: str
) -> None:
    """More than one transaction copies."""
    count = pgvector.COPIED_AT_ONCE + 50
    vectors = make_vectors(count)
    archive = await fill(store, make, vectors)
    assert execute(blank_postgres_url, "SELECT to_regclass('passage_vectors_copy')") == [(None,)]

    await prepare_search(store, MODEL, DIMENSIONS)

    copied = execute(blank_postgres_url, "SELECT count(*) FROM passage_vectors_copy")
    assert copied == [(count,)]
    # From now on each vector is copied when it is stored, and deleted with its passage.
    await add_with_vectors(store, [make.passage(archive, "new")], [vectors[0]])
    await store.write(lambda tx: tx.passages.delete_matching(ORG, PassageFilter(contains="p1")))
    (left,) = execute(blank_postgres_url, "SELECT count(*) FROM passage_vectors")
    assert execute(blank_postgres_url, "SELECT count(*) FROM passage_vectors_copy") == [left]
    assert (await find(store, vectors[0]))[0] == "new"


async def test_nothing_is_lost_if_the_extension_is_taken_away(
    store: PostgresStore, make: Make, blank_postgres_url: str
) -> None:
    vectors = make_vectors(20)
    archive = await fill(store, make, vectors)
    await prepare_search(store, MODEL, DIMENSIONS)

    execute(blank_postgres_url, "DROP EXTENSION vector CASCADE")

    assert (await find(store, vectors[7]))[0] == "p7"
    await add_with_vectors(store, [make.passage(archive, "new")], [[5.0] * DIMENSIONS])
    assert (await find(store, [5.0] * DIMENSIONS))[0] == "new"
    # And if it comes back:
    await prepare_search(store, MODEL, DIMENSIONS)
    assert execute(blank_postgres_url, "SELECT count(*) FROM passage_vectors_copy") == [(21,)]
    assert (await find(store, [5.0] * DIMENSIONS))[0] == "new"


@pytest.fixture
def ordinary_url(postgres_url: str) -> Iterator[str]:
    """A database whose user may create tables and no extensions."""
    database = make_url(postgres_url).database
    execute(
        postgres_url,
        "CREATE ROLE ordinary LOGIN PASSWORD 'ordinary'",
        f"GRANT ALL ON DATABASE {database} TO ordinary",
        "GRANT ALL ON SCHEMA public TO ordinary",
    )
    url = make_url(postgres_url).set(username="ordinary", password="ordinary")
    yield url.render_as_string(hide_password=False)
    execute(postgres_url, "DROP OWNED BY ordinary CASCADE", "DROP ROLE ordinary")


async def test_a_user_who_may_not_install_the_extension_searches_without_it(
    ordinary_url: str, cipher: Cipher, make: Make
) -> None:
    store = await PostgresStore.open(ordinary_url, cipher=cipher)
    try:
        vectors = make_vectors(20)
        await fill(store, make, vectors)
        await prepare_search(store, MODEL, DIMENSIONS)

        assert (await find(store, vectors[7]))[0] == "p7"
    finally:
        await store.close()
    (check,) = await check_vectors(ordinary_url)
    assert check.verdict is Verdict.NOTE
    assert "CREATE EXTENSION vector" in check.message


async def test_doctor_says_whether_pgvector_is_used(
    store: PostgresStore, make: Make, blank_postgres_url: str
) -> None:
    (before,) = await check_vectors(blank_postgres_url)
    assert (before.verdict, "first vectors" in before.message) == (Verdict.GOOD, True)
    await fill(store, make, make_vectors(2))
    await prepare_search(store, MODEL, DIMENSIONS)

    (after,) = await check_vectors(blank_postgres_url)

    assert (after.verdict, "is used" in after.message) == (Verdict.GOOD, True)


async def test_doctor_says_nothing_of_pgvector_on_sqlite() -> None:
    assert await check_vectors("sqlite:////nowhere/holdfast.db") == []


@needs_pgbouncer
@pytest.mark.usefixtures("always_index")
async def test_the_settings_of_a_search_end_with_its_transaction(
    blank_postgres_url: str, cipher: Cipher, make: Make
) -> None:
    options = {"pool_mode": "transaction", "default_pool_size": "1"}
    with run_pgbouncer(blank_postgres_url, **options) as pooler:
        store = await PostgresStore.open(pooler.url, cipher=cipher)
        try:
            vectors = make_vectors(50)
            await fill(store, make, vectors)
            await prepare_search(store, MODEL, DIMENSIONS)
            assert (await find(store, vectors[7]))[0] == "p7"
        finally:
            await store.close()
        with psycopg.connect(pooler.url, autocommit=True, prepare_threshold=None) as connection:
            row = connection.execute("SELECT current_setting('hnsw.ef_search', true)").fetchone()
    assert row in {(None,), ("",), ("40",)}
