"""Changing the model of an archive: it can be stopped and goes on, and no passage is left without a vector."""

import asyncio

import pytest
from tests.doubles.embedder import HANDLE
from tests.support.embedding_rig import EmbeddingRig, poll
from tests.support.rig import ACTOR
from tests.support.waiting import WAIT_SECONDS

from holdfast.core.archives import Archive
from holdfast.ports.store import Store
from holdfast.usecases import archives, reembedding
from holdfast.usecases.reembedding import Reembedding

OTHER = "test/other"
# More than one batch of the background task.
MANY = 70


@pytest.fixture
def rig(any_store: Store) -> EmbeddingRig:
    return EmbeddingRig(any_store, HANDLE, OTHER)


async def fill(rig: EmbeddingRig) -> Archive:
    """An archive whose passages have vectors of the first model."""
    archive = await rig.add_archive()
    async with rig.run_task():
        await rig.insert(archive, *(f"Fact {number}." for number in range(MANY)))
        await rig.wait_until_embedded(archive, MANY)
    return archive


async def advance(rig: EmbeddingRig, archive: Archive, *, skip_failed: bool = False) -> Reembedding:
    return await reembedding.advance(
        rig.services, ACTOR, archive.id, OTHER, skip_failed=skip_failed
    )


async def finish(rig: EmbeddingRig, archive: Archive) -> None:
    async def is_complete() -> bool:
        return (await advance(rig, archive)).is_complete

    await poll(is_complete)


async def model_of(rig: EmbeddingRig, archive: Archive) -> str | None:
    return (await archives.retrieve(rig.services, ACTOR, archive.id)).embedding


def count_embedded(rig: EmbeddingRig) -> int:
    """How many texts the new model was given."""
    return sum(len(texts) for handle, texts, _ in rig.embedder.calls if handle == OTHER)


async def test_what_was_embedded_before_a_stop_is_not_embedded_again(rig: EmbeddingRig) -> None:
    archive = await fill(rig)
    await advance(rig, archive)
    async with rig.run_task():

        async def has_begun() -> bool:
            return (await rig.progress(archive, OTHER)).embedded > 0

        await poll(has_begun)
        # The batches that are under way are given back when the task ends.
        rig.embedder.gate.clear()
    done_before = (await rig.progress(archive, OTHER)).embedded
    assert await model_of(rig, archive) == HANDLE
    rig.embedder.gate.set()
    rig.embedder.calls.clear()

    async with rig.run_task():
        await finish(rig, archive)

    # Vectors that were made before the stop may have been stored just after it.
    assert count_embedded(rig) <= MANY - done_before
    assert await model_of(rig, archive) == OTHER
    assert (await rig.progress(archive)).embedded == 0


async def test_a_passage_that_is_refused_keeps_the_old_model_unless_it_may_be_skipped(
    rig: EmbeddingRig,
) -> None:
    archive = await fill(rig)
    rig.embedder.refused = "Fact 13."
    async with rig.run_task():

        async def is_over() -> bool:
            progress = (await advance(rig, archive)).progress
            return progress.embedded + progress.given_up == MANY

        await poll(is_over)
        assert not (await advance(rig, archive)).is_complete
        assert await model_of(rig, archive) == HANDLE
        assert (await rig.progress(archive)).embedded == MANY

        assert (await advance(rig, archive, skip_failed=True)).is_complete

    assert await model_of(rig, archive) == OTHER
    found = await rig.search("13")
    # It has the word, and another one is the nearest of those with vectors.
    assert "Fact 13." in [item.passage.text for item in found.found][:2]


async def test_passages_that_are_stored_meanwhile_are_not_forgotten(rig: EmbeddingRig) -> None:
    archive = await fill(rig)

    async def store_more() -> None:
        for number in range(20):
            await rig.insert(archive, f"New {number}.")

    async with rig.run_task(), asyncio.timeout(WAIT_SECONDS), asyncio.TaskGroup() as group:
        group.create_task(store_more())
        group.create_task(finish(rig, archive))

    # Those that came before the change were part of it, and the others have the new model.
    assert (await rig.progress(archive, OTHER)).embedded == MANY + 20
    assert (await rig.progress(archive)).embedded == 0
    assert await rig.count_due() == 0
