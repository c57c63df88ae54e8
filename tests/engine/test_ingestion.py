"""Uploaded files are processed one after the other, whatever becomes of one of them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from msgspec import structs
from tests.doubles.clock import MovableClock
from tests.doubles.documents import ScriptedDocuments
from tests.doubles.embedder import HANDLE, WordEmbedder
from tests.support.rig import ACTOR, Rig
from tests.support.uploads import list_files, list_passages, make_folder, read_file, upload

from holdfast.core.embeddings import EmbeddingProgress
from holdfast.core.file_names import DuplicateHandling
from holdfast.core.files import File, FileStatus
from holdfast.engine import ingestion
from holdfast.engine.file_ingestion import INTERNAL_ERROR
from holdfast.engine.file_removal import FileRemoval
from holdfast.engine.ingestion import Ingestion
from holdfast.errors import (
    BackendError,
    DocumentUnreadable,
    NotFound,
    TooLarge,
    UnsupportedFileType,
)
from holdfast.ports.services import Limits, Services
from holdfast.ports.store import Store, Transaction
from holdfast.usecases import files, folders

# Each wait is for work of several transactions, on a machine that may have other things to do.
WAIT_SECONDS = 60


class ImpatientClock(MovableClock):
    """Sleeps take no time, but others get their turn."""

    async def sleep(self, seconds: float) -> None:
        self.advance(seconds)
        await asyncio.sleep(0)


@pytest.fixture
def documents() -> ScriptedDocuments:
    return ScriptedDocuments()


@pytest.fixture
def services(any_store: Store, documents: ScriptedDocuments) -> Services:
    return replace(Rig(any_store, clock=ImpatientClock()).services, documents=documents)


@asynccontextmanager
async def run_ingestion(services: Services) -> AsyncIterator[None]:
    task = asyncio.create_task(Ingestion(services, open_nowhere).run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait_for(asyncio.gather(task, return_exceptions=True), WAIT_SECONDS)


def open_nowhere(_tx: Transaction, _services: Services, _file: File) -> None: ...


async def wait_for_status(services: Services, file: File, *statuses: FileStatus) -> File:
    """Look again at each ring, and now and then: the end of a file rings here."""
    expected = statuses or (FileStatus.COMPLETED, FileStatus.ERROR)
    async with asyncio.timeout(WAIT_SECONDS):
        while (found := await read_file(services, file)).status not in expected:
            pass
    return found


async def test_files_are_processed_and_found(services: Services) -> None:
    folder = await make_folder(services)
    async with run_ingestion(services):
        # The ring of the upload wakes the task; it would look by itself only after seconds.
        file = await upload(services, folder, "An umbrella is in the text.")
        done = await wait_for_status(services, file)
    assert (done.status, done.total_chunks) == (FileStatus.COMPLETED, 1)
    (passage,) = await list_passages(services, file)
    assert passage.metadata == {"start_line": 1, "end_line": 1}


async def test_two_files_are_processed_at_once_and_the_oldest_first(
    services: Services, documents: ScriptedDocuments
) -> None:
    folder = await make_folder(services)
    uploaded = [await upload(services, folder, f"text {number}") for number in range(4)]
    documents.gate.clear()
    async with run_ingestion(services):
        await asyncio.wait_for(documents.asked.wait(), WAIT_SECONDS)
        async with asyncio.timeout(WAIT_SECONDS):
            while len(documents.extracted) < 2:
                await read_file(services, uploaded[0])
        assert sorted(documents.extracted) == [b"text 0", b"text 1"]
        documents.gate.set()
        for file in uploaded:
            await wait_for_status(services, file)
    assert len(documents.extracted) == 4


async def test_the_same_bytes_are_stored_and_read_once(
    services: Services, documents: ScriptedDocuments
) -> None:
    folder = await make_folder(services)
    uploaded = [await upload(services, folder, "the same") for _ in range(5)]
    assert len({file.content_id for file in uploaded}) == 1
    assert [file.name for file in uploaded[:2]] == ["a.txt", "a_(1).txt"]
    async with run_ingestion(services):
        for file in uploaded:
            assert (await wait_for_status(services, file)).status is FileStatus.COMPLETED
    assert documents.extracted == [b"the same"]
    for file in uploaded:
        assert [passage.text for passage in await list_passages(services, file)] == ["the same"]


async def test_a_deleted_file_is_not_processed_any_further(
    services: Services, documents: ScriptedDocuments
) -> None:
    folder = await make_folder(services)
    documents.gate.clear()
    async with run_ingestion(services):
        file = await upload(services, folder, "long")
        await asyncio.wait_for(documents.asked.wait(), WAIT_SECONDS)
        await files.delete(services, ACTOR, file.id, folder.id)
        await asyncio.wait_for(documents.cancelled.wait(), WAIT_SECONDS)
        documents.gate.set()
        other = await upload(services, folder, "other")
        assert (await wait_for_status(services, other)).name == "a.txt"
    await FileRemoval(services).remove_all()
    with pytest.raises(NotFound):
        await services.store.read(lambda tx: tx.contents.get(file.content_id))


async def test_the_files_of_a_deleted_folder_are_not_processed_any_further(
    services: Services, documents: ScriptedDocuments
) -> None:
    folder = await make_folder(services)
    documents.gate.clear()
    async with run_ingestion(services):
        await upload(services, folder, "long")
        await asyncio.wait_for(documents.asked.wait(), WAIT_SECONDS)
        await folders.delete(services, ACTOR, folder.id)
        await asyncio.wait_for(documents.cancelled.wait(), WAIT_SECONDS)


async def test_a_file_without_a_text_says_why_and_the_others_go_on(
    services: Services, documents: ScriptedDocuments
) -> None:
    folder = await make_folder(services)
    documents.failures = [DocumentUnreadable("The PDF is encrypted.")]
    async with run_ingestion(services):
        unreadable = await wait_for_status(services, await upload(services, folder, "secret"))
        readable = await wait_for_status(services, await upload(services, folder, "open"))
    assert unreadable.status is FileStatus.ERROR
    assert unreadable.error_message == "The PDF is encrypted."
    assert readable.status is FileStatus.COMPLETED


async def test_bytes_that_could_not_be_read_are_tried_again_with_the_next_upload(
    services: Services, documents: ScriptedDocuments
) -> None:
    folder = await make_folder(services)
    documents.failures = [DocumentUnreadable("It took too long.")]
    async with run_ingestion(services):
        first = await wait_for_status(services, await upload(services, folder, "slow"))
        second = await wait_for_status(services, await upload(services, folder, "slow"))
    assert first.status is FileStatus.ERROR
    assert second.status is FileStatus.COMPLETED


async def test_a_text_that_is_not_complete_has_a_message(
    services: Services, documents: ScriptedDocuments
) -> None:
    folder = await make_folder(services)
    documents.problem = "The pages of the PDF are pictures."
    documents.read = lambda _: ""
    async with run_ingestion(services):
        done = await wait_for_status(services, await upload(services, folder, "scan"))
    assert (done.status, done.total_chunks) == (FileStatus.COMPLETED, 0)
    assert done.error_message == "The pages of the PDF are pictures."


async def test_a_machine_that_cannot_start_processes_is_tried_again(
    services: Services, documents: ScriptedDocuments
) -> None:
    folder = await make_folder(services)
    # More often than a file that stops the server is begun.
    documents.failures = [BackendError("no process can be started") for _ in range(7)]
    async with run_ingestion(services):
        done = await wait_for_status(services, await upload(services, folder, "text"))
    assert done.status is FileStatus.COMPLETED
    assert len(documents.extracted) == 8


async def test_a_server_that_stops_orderly_does_not_count_as_an_attempt(
    services: Services, documents: ScriptedDocuments
) -> None:
    folder = await make_folder(services)
    file = await upload(services, folder, "text")
    documents.gate.clear()
    async with run_ingestion(services):
        await asyncio.wait_for(documents.asked.wait(), WAIT_SECONDS)
    assert documents.cancelled.is_set()
    assert (await read_file(services, file)).attempts == 0


async def test_an_error_of_the_server_ends_the_file_and_not_the_task(
    services: Services, documents: ScriptedDocuments
) -> None:
    folder = await make_folder(services)
    documents.failures = [LookupError("a bug")]
    async with run_ingestion(services):
        failed = await wait_for_status(services, await upload(services, folder, "text"))
        other = await wait_for_status(services, await upload(services, folder, "other"))
    assert (failed.status, failed.error_message) == (FileStatus.ERROR, INTERNAL_ERROR)
    assert other.status is FileStatus.COMPLETED


async def test_a_newer_replacement_wins_however_late_the_older_one_is(
    services: Services, documents: ScriptedDocuments
) -> None:
    folder = await make_folder(services)
    async with run_ingestion(services):
        first = await upload(services, folder, "1")
        await wait_for_status(services, first)
        documents.gate.clear()
        older = await upload(services, folder, "2", on_duplicate=DuplicateHandling.REPLACE)
        async with asyncio.timeout(WAIT_SECONDS):
            while b"2" not in documents.extracted:
                await read_file(services, older)
        # The bytes of the first are there already, so nothing is extracted.
        newer = await upload(services, folder, "1", on_duplicate=DuplicateHandling.REPLACE)
        assert [file.id for file in await list_files(services, folder)] == [
            first.id,
            older.id,
            newer.id,
        ]
        done = await wait_for_status(services, newer)
        await asyncio.wait_for(documents.cancelled.wait(), WAIT_SECONDS)
    assert (done.name, done.replaces_id) == ("a.txt", None)
    assert [file.id for file in await list_files(services, folder)] == [newer.id]


async def test_a_replacement_takes_the_place_whatever_the_clocks_of_servers_say(
    services: Services,
) -> None:
    """Its server is slow, or an hour behind the one that stored the first file."""
    clock = services.clock
    assert isinstance(clock, ImpatientClock)
    folder = await make_folder(services)
    clock.advance(3_600)
    first = await upload(services, folder, "1")
    clock.advance(-3_600)
    second = await upload(services, folder, "2", on_duplicate=DuplicateHandling.REPLACE)
    assert second.created_at > first.created_at
    async with run_ingestion(services):
        await wait_for_status(services, second)
    assert [file.id for file in await list_files(services, folder)] == [second.id]


async def test_a_numbered_name_goes_around_a_file_that_is_to_replace_another(
    services: Services,
) -> None:
    folder = await make_folder(services)
    await upload(services, folder, "1")
    await upload(services, folder, "2", on_duplicate=DuplicateHandling.REPLACE)
    assert (await upload(services, folder, "3")).name == "a_(1).txt"


async def test_a_file_that_is_too_large_or_of_no_known_type_is_refused(services: Services) -> None:
    folder = await make_folder(services)
    small = replace(services, limits=Limits(max_file_mb=1))
    with pytest.raises(TooLarge, match="HOLDFAST_MAX_FILE_MB"):
        await upload(small, folder, b"x" * (1024 * 1024 + 1))
    with pytest.raises(UnsupportedFileType, match="Unsupported file type"):
        await upload(services, folder, b"x", "a.png")
    assert await list_files(services, folder) == []


async def test_a_file_waits_for_its_vectors(services: Services) -> None:
    with_model = replace(services, embedder=WordEmbedder())
    folder = await make_folder(services, embedding=HANDLE)
    async with run_ingestion(with_model):
        file = await upload(services, folder, "text")
        waiting = await wait_for_status(services, file, FileStatus.EMBEDDING)
    assert (waiting.total_chunks, waiting.chunks_embedded) == (1, 0)
    progress = await services.store.read(lambda tx: tx.passages.embedding_progress(file.id))
    assert progress.untried == 1


async def test_a_model_that_is_not_configured_is_not_waited_for(services: Services) -> None:
    folder = await make_folder(services, embedding="openai/text-embedding-3-small")
    async with run_ingestion(services):
        done = await wait_for_status(services, await upload(services, folder, "text"))
    assert done.status is FileStatus.COMPLETED


@pytest.mark.parametrize(
    ("progress", "status", "message"),
    [
        ({"embedded": 1, "untried": 3, "failed": 0}, FileStatus.EMBEDDING, None),
        ({"embedded": 4, "untried": 0, "failed": 0}, FileStatus.COMPLETED, None),
        (
            {"embedded": 1, "untried": 0, "failed": 3, "error": "x"},
            FileStatus.COMPLETED,
            "3 of 4 parts of the file have no vectors, so that they are found by their words only. The last error was: x",
        ),
    ],
)
def test_a_file_is_completed_when_each_vector_was_tried(
    progress: dict[str, int], status: FileStatus, message: str | None
) -> None:
    now = ImpatientClock().now()
    file = File(
        id="file-1",
        organization_id="org",
        folder_id="source-1",
        name="a",
        original_name="a",
        content_id="content-1",
        created_at=now,
        updated_at=now,
        status=FileStatus.EMBEDDING,
        total_chunks=4,
    )
    changed = ingestion.follow_progress(file, EmbeddingProgress(total=4, **progress))  # type: ignore[arg-type] # one is a text
    assert changed == structs.replace(
        file, status=status, error_message=message, chunks_embedded=progress["embedded"]
    )
