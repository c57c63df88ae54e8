"""Vectors are made at once if the provider is quick, else in the background; no text is lost and none is forgotten."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta

import pytest
from tests.doubles.clock import MovableClock
from tests.doubles.embedder import HANDLE, WordEmbedder
from tests.doubles.store import CrashingStore, OutageStore
from tests.support.rig import ACTOR, Rig
from tests.support.waiting import WAIT_SECONDS, eventually

from holdfast.adapters.store.sqlite import SqliteStore
from holdfast.core.archives import Archive
from holdfast.core.embeddings import FIRST_WAIT_SECONDS, DueText, EmbeddingProgress, Embeddings
from holdfast.core.ids import Kind
from holdfast.core.passages import PassageFilter
from holdfast.engine import embedding
from holdfast.engine.embedding import Embedding
from holdfast.errors import ModelAuthFailed, ModelOverloaded, ModelRejectedRequest
from holdfast.ports.bell import EMBEDDINGS
from holdfast.ports.store import Store
from holdfast.usecases import passage_search, passages
from holdfast.usecases.passages import NewPassage, StoredPassage

ANYWHERE = PassageFilter()
OVERLOADED = ModelOverloaded("busy", transient=True)


class FaultyEmbedder(WordEmbedder):
    """Refuses texts with a certain word, and has bugs."""

    def __init__(self) -> None:
        super().__init__()
        self.refused: str | None = None
        self.bugs: list[Exception] = []

    async def embed(
        self, handle: str, texts: Sequence[str], *, is_query: bool = False
    ) -> Embeddings:
        if self.bugs:
            raise self.bugs.pop()
        if self.refused is not None and any(self.refused in text for text in texts):
            raise ModelRejectedRequest(f"no {self.refused}, please")
        return await super().embed(handle, texts, is_query=is_query)


class House:
    """The services with a scripted embedder and a clock that the test moves."""

    def __init__(self, store: Store) -> None:
        self.clock = MovableClock()
        self.embedder = FaultyEmbedder()
        self.rig = Rig(store, clock=self.clock)
        self.services = replace(self.rig.services, embedder=self.embedder)

    async def add_archive(self, embedding: str | None = HANDLE) -> Archive:
        now = self.clock.now()
        archive = Archive(
            id=self.services.ids.new_id(Kind.ARCHIVE),
            organization_id=ACTOR.organization_id,
            name="a",
            embedding=embedding,
            created_at=now,
            updated_at=now,
        )
        await self.services.store.write(lambda tx: tx.archives.add(archive))
        return archive

    async def insert(self, archive: Archive, *texts: str) -> list[StoredPassage]:
        items = [NewPassage(text=text) for text in texts]
        return list(await passages.insert(self.services, ACTOR, archive.id, items))

    async def search(self, query: str, limit: int = 10) -> passage_search.PassageSearch:
        return await passage_search.search(self.services, ACTOR, ANYWHERE, query, limit)

    async def count_due(self) -> int:
        later = self.clock.now() + timedelta(days=1)
        due = await self.services.store.read(lambda tx: tx.passage_vectors.list_due(later, 1_000))
        return len(due)

    @asynccontextmanager
    async def run_task(self, **options: float) -> AsyncIterator[asyncio.Task[None]]:
        task = asyncio.create_task(Embedding(self.services, **options).run())
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.wait_for(asyncio.gather(task, return_exceptions=True), WAIT_SECONDS)

    def advance(self, seconds: float = 3_600.0) -> None:
        self.clock.advance(seconds)
        self.services.bell.ring(EMBEDDINGS)

    async def wait_until_embedded(self, archive: Archive, count: int) -> None:
        async def is_done() -> bool:
            return (await self.progress(archive)).embedded == count

        await poll(is_done)

    async def wait_for_attempts(self, attempts: int) -> DueText:
        """The one text that waits, when so many attempts have failed."""
        async with asyncio.timeout(WAIT_SECONDS):
            while True:
                later = self.clock.now() + timedelta(days=1)
                (due,) = await self.services.store.read(
                    lambda tx, at=later: tx.passage_vectors.list_due(at, 9)  # type: ignore[misc]  # mypy does not see the default
                )
                # While it is claimed, it is due much later.
                half = timedelta(seconds=embedding.CLAIM_SECONDS / 2)
                if due.attempts == attempts and due.due_at < self.clock.now() + half:
                    return due

    async def progress(self, archive: Archive) -> EmbeddingProgress:
        return await self.services.store.read(
            lambda tx: tx.passages.archive_progress(archive.id, HANDLE)
        )


async def poll(is_done: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not await is_done():
            pass


@pytest.fixture
def house(store: SqliteStore) -> House:
    return House(store)


async def test_a_created_passage_has_its_vector_if_the_provider_is_quick(house: House) -> None:
    archive = await house.add_archive()

    (stored,) = await house.insert(archive, "The cat sleeps.")

    assert stored.vector is not None
    assert stored.vector.dimensions == 64
    assert await house.count_due() == 0
    found = await house.search("cat")
    assert (found.mode, found.unused) == ("hybrid", ())
    assert found.found[0].match.vector_rank == 1


async def test_a_provider_that_fails_does_not_make_an_insert_fail(house: House) -> None:
    archive = await house.add_archive()
    house.embedder.failures = [OVERLOADED]

    (stored,) = await house.insert(archive, "The cat sleeps.")

    assert stored.vector is None
    found = await house.search("cat")
    assert [item.passage.text for item in found.found] == ["The cat sleeps."]
    assert found.unused == (
        f"1 texts have no vector of {HANDLE} yet: they were searched by words only.",
    )


async def test_a_provider_that_is_late_delays_an_insert_only_so_long(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passages, "REQUEST_SECONDS", 0.01)
    archive = await house.add_archive()
    house.embedder.gate.clear()

    (stored,) = await house.insert(archive, "The cat sleeps.")

    assert stored.vector is None
    house.embedder.gate.set()
    async with house.run_task():
        house.advance()
        await house.wait_until_embedded(archive, 1)


async def test_an_archive_without_a_configured_model_asks_nobody(house: House) -> None:
    for handle in (None, "openai/text-embedding-3-small"):
        archive = await house.add_archive(handle)
        await house.insert(archive, "The cat sleeps.")

    found = await house.search("cat")

    assert house.embedder.calls == []
    assert await house.count_due() == 0
    assert (found.mode, len(found.found)) == ("fts", 2)
    assert found.unused == (
        "The embedding model openai/text-embedding-3-small is not configured: its texts were searched by words only.",
    )


async def test_a_search_without_its_provider_uses_words_and_says_so(house: House) -> None:
    archive = await house.add_archive()
    await house.insert(archive, "The cat sleeps.")
    house.embedder.failures = [OVERLOADED]

    found = await house.search("cat")

    assert (found.mode, len(found.found)) == ("fts", 1)
    assert found.unused[0].startswith(f"The embedding model {HANDLE} did not answer (")


async def test_a_search_waits_only_so_long_for_its_provider(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.usecases.query_vectors.QUERY_SECONDS", 0.01)
    archive = await house.add_archive()
    await house.insert(archive, "The cat sleeps.")
    house.embedder.gate.clear()

    found = await house.search("cat")

    assert (found.mode, len(found.found)) == ("fts", 1)
    assert "took longer" in found.unused[0]


async def test_many_passages_are_embedded_in_the_background_in_batches(house: House) -> None:
    archive = await house.add_archive()
    async with house.run_task():
        stored = await house.insert(archive, *(f"Fact {number}." for number in range(100)))
        assert [item.vector for item in stored] == [None] * 100
        await house.wait_until_embedded(archive, 100)

    sizes = [len(texts) for _, texts, _ in house.embedder.calls]
    assert sum(sizes) == 100
    assert max(sizes) == embedding.BATCH_TEXTS


async def test_at_most_three_requests_are_made_at_a_time(house: House) -> None:
    archive = await house.add_archive()
    house.embedder.gate.clear()
    async with house.run_task():
        await house.insert(archive, *(f"Fact {number}." for number in range(200)))
        await eventually(lambda: len(house.embedder.calls) == embedding.MAX_CONCURRENT)
        house.services.bell.ring(EMBEDDINGS)
        await house.search("Fact")
        assert len([call for call in house.embedder.calls if not call[2]]) == 3
        house.embedder.gate.set()
        await house.wait_until_embedded(archive, 200)


async def test_a_transient_failure_is_tried_again_later_and_later(house: House) -> None:
    archive = await house.add_archive()
    house.embedder.failures = [OVERLOADED] * 3
    await house.insert(archive, "The cat sleeps.")
    waits = []

    async with house.run_task():
        for attempts in (1, 2):
            house.advance()
            due = await house.wait_for_attempts(attempts)
            waits.append((due.due_at - house.clock.now()).total_seconds())
        house.advance()
        await house.wait_until_embedded(archive, 1)

    # The random part is at most a half.
    assert 0 < waits[0] <= FIRST_WAIT_SECONDS < waits[1] * 2 <= FIRST_WAIT_SECONDS * 4
    assert len(house.embedder.calls) == 4


async def test_a_text_that_is_refused_is_given_up_and_the_others_are_not(house: House) -> None:
    archive = await house.add_archive()
    house.embedder.refused = "poison"
    await house.insert(archive, *(f"Fact {n}." for n in range(40)), "This is poison.")

    async with house.run_task():
        await house.wait_until_embedded(archive, 40)

        async def is_given_up() -> bool:
            return (await house.progress(archive)).given_up == 1

        await poll(is_given_up)

    progress = await house.progress(archive)
    assert (progress.total, progress.untried, progress.failed) == (41, 0, 1)
    assert "poison" in str(progress.error)
    assert await house.count_due() == 0


async def test_a_provider_that_refuses_the_key_is_asked_once(house: House) -> None:
    archive = await house.add_archive()
    house.embedder.failures = [ModelAuthFailed("bad key")] * 2
    await house.insert(archive, "One.", "Two.")
    async with house.run_task():
        house.advance()

        async def is_given_up() -> bool:
            return (await house.progress(archive)).given_up == 2

        await poll(is_given_up)

    assert len(house.embedder.calls) == 2


async def test_vectors_of_another_length_are_refused(house: House) -> None:
    archive = await house.add_archive()
    await house.insert(archive, "The cat sleeps.")
    house.embedder.dimensions = 32

    (stored,) = await house.insert(archive, "The dog barks.")

    assert stored.vector is None
    progress = await house.progress(archive)
    assert (progress.embedded, progress.given_up) == (1, 1)
    assert "mixing is refused" in str(progress.error)


async def test_what_was_not_done_at_a_stop_is_done_after_the_next_start(house: House) -> None:
    archive = await house.add_archive()
    house.embedder.gate.clear()
    async with house.run_task():
        await house.insert(archive, *(f"Fact {number}." for number in range(40)))
        await asyncio.wait_for(house.embedder.asked.wait(), WAIT_SECONDS)
    # Released: due at once.
    house.embedder.gate.set()

    async with house.run_task():
        await house.wait_until_embedded(archive, 40)


async def test_a_claim_of_a_dead_server_expires(house: House) -> None:
    archive = await house.add_archive()
    house.embedder.failures = [OVERLOADED]
    await house.insert(archive, "The cat sleeps.")
    now = house.clock.now() + timedelta(minutes=1)
    until = now + timedelta(seconds=embedding.CLAIM_SECONDS)
    due = await house.services.store.read(lambda tx: tx.passage_vectors.list_due(now, 9))
    assert await house.services.store.write(lambda tx: tx.passage_vectors.claim(due, until))

    async with house.run_task():
        house.advance()
        await house.wait_until_embedded(archive, 1)


async def test_two_leaders_at_once_store_each_vector_once(house: House) -> None:
    archive = await house.add_archive()
    async with house.run_task(), house.run_task():
        await house.insert(archive, *(f"Fact {number}." for number in range(100)))
        await house.wait_until_embedded(archive, 100)


@pytest.mark.parametrize("after_commit", [False, True])
@pytest.mark.parametrize("at", range(4))
async def test_a_crash_at_any_write_loses_nothing(
    store: SqliteStore, at: int, after_commit: bool
) -> None:
    """The claim, the vectors: whatever is the last thing that the process does, the next one goes on."""
    first = House(store)
    archive = await first.add_archive()
    await first.insert(archive, *(f"Fact {number}." for number in range(40)))
    crashing = CrashingStore(store, at, after_commit=after_commit)
    first.services = replace(first.services, store=crashing)
    async with first.run_task():
        await asyncio.wait_for(crashing.died.wait(), WAIT_SECONDS)

    second = House(store)
    async with second.run_task():
        second.advance()
        await second.wait_until_embedded(archive, 40)


async def test_an_outage_of_the_store_only_delays_vectors(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedding, "STORE_RETRY_SECONDS", 0.01)
    outage = OutageStore(store)
    house = House(outage)
    archive = await house.add_archive()
    await house.insert(archive, *(f"Fact {number}." for number in range(40)))
    outage.is_out = True
    async with house.run_task() as task:
        await asyncio.wait_for(outage.failed.wait(), WAIT_SECONDS)
        outage.is_out = False
        house.advance()
        await house.wait_until_embedded(archive, 40)
        assert not task.done()


async def test_a_bug_in_the_embedder_is_logged_and_delays_vectors(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    archive = await house.add_archive()
    house.embedder.bugs = [ZeroDivisionError()]
    async with house.run_task() as task:
        await house.insert(archive, *(f"Fact {number}." for number in range(40)))
        await eventually(lambda: "embedding.failed" in caplog.text)
        house.advance()
        await house.wait_until_embedded(archive, 40)
        assert not task.done()


async def test_an_attempt_that_hangs_is_cut_off_and_tried_again(house: House) -> None:
    archive = await house.add_archive()
    house.embedder.gate.clear()
    async with house.run_task(attempt_seconds=0.01):
        await house.insert(archive, *(f"Fact {number}." for number in range(40)))

        async def has_failed() -> bool:
            return (await house.progress(archive)).failed > 0

        await poll(has_failed)
        house.embedder.gate.set()
        house.advance()
        await house.wait_until_embedded(archive, 40)


async def test_passages_deleted_meanwhile_get_no_vector(house: House) -> None:
    archive = await house.add_archive()
    house.embedder.gate.clear()
    async with house.run_task():
        stored = await house.insert(archive, *(f"Fact {number}." for number in range(40)))
        await asyncio.wait_for(house.embedder.asked.wait(), WAIT_SECONDS)
        for item in stored[:30]:
            passage_id = item.passage.id
            await house.services.store.write(
                lambda tx, this=passage_id: tx.passages.delete(ACTOR.organization_id, this)  # type: ignore[misc]  # mypy does not see the default
            )
        house.embedder.gate.set()
        await house.wait_until_embedded(archive, 10)

    assert await house.count_due() == 0
