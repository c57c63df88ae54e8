"""Vectors are made at once if the provider is quick, else in the background; no text is lost and none is forgotten."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest
from tests.doubles.embedder import HANDLE
from tests.doubles.store import CrashingStore, OutageStore
from tests.support.embedding_rig import EmbeddingRig, poll
from tests.support.rig import ACTOR
from tests.support.waiting import WAIT_SECONDS, eventually

from holdfast.adapters.store.sqlite import SqliteStore
from holdfast.core.embeddings import FIRST_WAIT_SECONDS
from holdfast.engine import embedding
from holdfast.errors import ModelAuthFailed, ModelOverloaded
from holdfast.ports.bell import EMBEDDINGS
from holdfast.usecases import passages

OVERLOADED = ModelOverloaded("busy", transient=True)


@pytest.fixture
def rig(store: SqliteStore) -> EmbeddingRig:
    return EmbeddingRig(store)


async def test_a_created_passage_has_its_vector_if_the_provider_is_quick(rig: EmbeddingRig) -> None:
    archive = await rig.add_archive()

    (stored,) = await rig.insert(archive, "The cat sleeps.")

    assert stored.vector is not None
    assert stored.vector.dimensions == 64
    assert await rig.count_due() == 0
    found = await rig.search("cat")
    assert (found.mode, found.unused) == ("hybrid", ())
    assert found.found[0].match.vector_rank == 1


async def test_a_provider_that_fails_does_not_make_an_insert_fail(rig: EmbeddingRig) -> None:
    archive = await rig.add_archive()
    rig.embedder.failures = [OVERLOADED]

    (stored,) = await rig.insert(archive, "The cat sleeps.")

    assert stored.vector is None
    found = await rig.search("cat")
    assert [item.passage.text for item in found.found] == ["The cat sleeps."]
    assert found.unused == (
        f"1 texts have no vector of {HANDLE} yet: they were searched by words only.",
    )


async def test_a_provider_that_is_late_delays_an_insert_only_so_long(
    rig: EmbeddingRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passages, "REQUEST_SECONDS", 0.01)
    archive = await rig.add_archive()
    rig.embedder.gate.clear()

    (stored,) = await rig.insert(archive, "The cat sleeps.")

    assert stored.vector is None
    rig.embedder.gate.set()
    async with rig.run_task():
        rig.advance()
        await rig.wait_until_embedded(archive, 1)


async def test_an_archive_without_a_configured_model_asks_nobody(rig: EmbeddingRig) -> None:
    for handle in (None, "openai/text-embedding-3-small"):
        archive = await rig.add_archive(handle)
        await rig.insert(archive, "The cat sleeps.")

    found = await rig.search("cat")

    assert rig.embedder.calls == []
    assert await rig.count_due() == 0
    assert (found.mode, len(found.found)) == ("fts", 2)
    assert found.unused == (
        "The embedding model openai/text-embedding-3-small is not configured: its texts were searched by words only.",
    )


async def test_a_search_without_its_provider_uses_words_and_says_so(rig: EmbeddingRig) -> None:
    archive = await rig.add_archive()
    await rig.insert(archive, "The cat sleeps.")
    rig.embedder.failures = [OVERLOADED]

    found = await rig.search("cat")

    assert (found.mode, len(found.found)) == ("fts", 1)
    assert found.unused[0].startswith(f"The embedding model {HANDLE} did not answer (")


async def test_a_search_waits_only_so_long_for_its_provider(
    rig: EmbeddingRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.usecases.query_vectors.QUERY_SECONDS", 0.01)
    archive = await rig.add_archive()
    await rig.insert(archive, "The cat sleeps.")
    rig.embedder.gate.clear()

    found = await rig.search("cat")

    assert (found.mode, len(found.found)) == ("fts", 1)
    assert "took longer" in found.unused[0]


async def test_many_passages_are_embedded_in_the_background_in_batches(rig: EmbeddingRig) -> None:
    archive = await rig.add_archive()
    async with rig.run_task():
        stored = await rig.insert(archive, *(f"Fact {number}." for number in range(100)))
        assert [item.vector for item in stored] == [None] * 100
        await rig.wait_until_embedded(archive, 100)

    sizes = [len(texts) for _, texts, _ in rig.embedder.calls]
    assert sum(sizes) == 100
    assert max(sizes) == embedding.BATCH_TEXTS


async def test_at_most_three_requests_are_made_at_a_time(rig: EmbeddingRig) -> None:
    archive = await rig.add_archive()
    rig.embedder.gate.clear()
    async with rig.run_task():
        await rig.insert(archive, *(f"Fact {number}." for number in range(200)))
        await eventually(lambda: len(rig.embedder.calls) == embedding.MAX_CONCURRENT)
        rig.services.bell.ring(EMBEDDINGS)
        await rig.search("Fact")
        assert len([call for call in rig.embedder.calls if not call[2]]) == 3
        rig.embedder.gate.set()
        await rig.wait_until_embedded(archive, 200)


async def test_a_transient_failure_is_tried_again_later_and_later(rig: EmbeddingRig) -> None:
    archive = await rig.add_archive()
    rig.embedder.failures = [OVERLOADED] * 3
    await rig.insert(archive, "The cat sleeps.")
    waits = []

    async with rig.run_task():
        for attempts in (1, 2):
            rig.advance()
            due = await rig.wait_for_attempts(attempts)
            waits.append((due.due_at - rig.clock.now()).total_seconds())
        rig.advance()
        await rig.wait_until_embedded(archive, 1)

    # The random part is at most a half.
    assert 0 < waits[0] <= FIRST_WAIT_SECONDS < waits[1] * 2 <= FIRST_WAIT_SECONDS * 4
    assert len(rig.embedder.calls) == 4


async def test_a_text_that_is_refused_is_given_up_and_the_others_are_not(rig: EmbeddingRig) -> None:
    archive = await rig.add_archive()
    rig.embedder.refused = "poison"
    await rig.insert(archive, *(f"Fact {n}." for n in range(40)), "This is poison.")

    async with rig.run_task():
        await rig.wait_until_embedded(archive, 40)

        async def is_given_up() -> bool:
            return (await rig.progress(archive)).given_up == 1

        await poll(is_given_up)

    progress = await rig.progress(archive)
    assert (progress.total, progress.untried, progress.failed) == (41, 0, 1)
    assert "poison" in str(progress.error)
    assert await rig.count_due() == 0


async def test_a_provider_that_refuses_the_key_is_asked_once(rig: EmbeddingRig) -> None:
    archive = await rig.add_archive()
    rig.embedder.failures = [ModelAuthFailed("bad key")] * 2
    await rig.insert(archive, "One.", "Two.")
    async with rig.run_task():
        rig.advance()

        async def is_given_up() -> bool:
            return (await rig.progress(archive)).given_up == 2

        await poll(is_given_up)

    assert len(rig.embedder.calls) == 2


async def test_vectors_of_another_length_are_refused(rig: EmbeddingRig) -> None:
    archive = await rig.add_archive()
    await rig.insert(archive, "The cat sleeps.")
    rig.embedder.dimensions = 32

    (stored,) = await rig.insert(archive, "The dog barks.")

    assert stored.vector is None
    progress = await rig.progress(archive)
    assert (progress.embedded, progress.given_up) == (1, 1)
    assert "mixing is refused" in str(progress.error)


async def test_what_was_not_done_at_a_stop_is_done_after_the_next_start(rig: EmbeddingRig) -> None:
    archive = await rig.add_archive()
    rig.embedder.gate.clear()
    async with rig.run_task():
        await rig.insert(archive, *(f"Fact {number}." for number in range(40)))
        await asyncio.wait_for(rig.embedder.asked.wait(), WAIT_SECONDS)
    # Released: due at once.
    rig.embedder.gate.set()

    async with rig.run_task():
        await rig.wait_until_embedded(archive, 40)


async def test_a_claim_of_a_dead_server_expires(rig: EmbeddingRig) -> None:
    archive = await rig.add_archive()
    rig.embedder.failures = [OVERLOADED]
    await rig.insert(archive, "The cat sleeps.")
    now = rig.clock.now() + timedelta(minutes=1)
    until = now + timedelta(seconds=embedding.CLAIM_SECONDS)
    due = await rig.services.store.read(lambda tx: tx.passage_vectors.list_due(now, 9))
    assert await rig.services.store.write(lambda tx: tx.passage_vectors.claim(due, until))

    async with rig.run_task():
        rig.advance()
        await rig.wait_until_embedded(archive, 1)


async def test_two_leaders_at_once_store_each_vector_once(rig: EmbeddingRig) -> None:
    archive = await rig.add_archive()
    async with rig.run_task(), rig.run_task():
        await rig.insert(archive, *(f"Fact {number}." for number in range(100)))
        await rig.wait_until_embedded(archive, 100)


@pytest.mark.parametrize("after_commit", [False, True])
@pytest.mark.parametrize("at", range(4))
async def test_a_crash_at_any_write_loses_nothing(
    store: SqliteStore, at: int, after_commit: bool
) -> None:
    """The claim, the vectors: whatever is the last thing that the process does, the next one goes on."""
    first = EmbeddingRig(store)
    archive = await first.add_archive()
    await first.insert(archive, *(f"Fact {number}." for number in range(40)))
    crashing = CrashingStore(store, at, after_commit=after_commit)
    first.services = replace(first.services, store=crashing)
    async with first.run_task():
        await asyncio.wait_for(crashing.died.wait(), WAIT_SECONDS)

    second = EmbeddingRig(store)
    async with second.run_task():
        second.advance()
        await second.wait_until_embedded(archive, 40)


async def test_an_outage_of_the_store_only_delays_vectors(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedding, "STORE_RETRY_SECONDS", 0.01)
    outage = OutageStore(store)
    rig = EmbeddingRig(outage)
    archive = await rig.add_archive()
    await rig.insert(archive, *(f"Fact {number}." for number in range(40)))
    outage.is_out = True
    async with rig.run_task() as task:
        await asyncio.wait_for(outage.failed.wait(), WAIT_SECONDS)
        outage.is_out = False
        rig.advance()
        await rig.wait_until_embedded(archive, 40)
        assert not task.done()


async def test_a_bug_in_the_embedder_is_logged_and_delays_vectors(
    rig: EmbeddingRig, caplog: pytest.LogCaptureFixture
) -> None:
    archive = await rig.add_archive()
    rig.embedder.bugs = [ZeroDivisionError()]
    async with rig.run_task() as task:
        await rig.insert(archive, *(f"Fact {number}." for number in range(40)))
        await eventually(lambda: "embedding.failed" in caplog.text)
        rig.advance()
        await rig.wait_until_embedded(archive, 40)
        assert not task.done()


async def test_an_attempt_that_hangs_is_cut_off_and_tried_again(rig: EmbeddingRig) -> None:
    archive = await rig.add_archive()
    rig.embedder.gate.clear()
    async with rig.run_task(attempt_seconds=0.01):
        await rig.insert(archive, *(f"Fact {number}." for number in range(40)))

        async def has_failed() -> bool:
            return (await rig.progress(archive)).failed > 0

        await poll(has_failed)
        rig.embedder.gate.set()
        rig.advance()
        await rig.wait_until_embedded(archive, 40)


async def test_passages_deleted_meanwhile_get_no_vector(rig: EmbeddingRig) -> None:
    archive = await rig.add_archive()
    rig.embedder.gate.clear()
    async with rig.run_task():
        stored = await rig.insert(archive, *(f"Fact {number}." for number in range(40)))
        await asyncio.wait_for(rig.embedder.asked.wait(), WAIT_SECONDS)
        for item in stored[:30]:
            passage_id = item.passage.id
            await rig.services.store.write(
                lambda tx, this=passage_id: tx.passages.delete(ACTOR.organization_id, this)  # type: ignore[misc]  # mypy does not see the default
            )
        rig.embedder.gate.set()
        await rig.wait_until_embedded(archive, 10)

    assert await rig.count_due() == 0
