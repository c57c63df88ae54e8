"""A crash, an outage or a cancellation at each point of an upload and of an ingestion: nothing is lost, and nothing is there
twice."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import count

import pytest
from msgspec import structs
from sqlalchemy import func, select
from tests.doubles.clock import MovableClock
from tests.doubles.crashing_store import CrashingStore, ServerDied
from tests.doubles.documents import ScriptedDocuments
from tests.support.rig import Rig
from tests.support.uploads import list_files, list_passages, make_folder, read_file, upload

from holdfast.adapters.store import tables
from holdfast.core.chunks import split_text
from holdfast.core.file_names import DuplicateHandling
from holdfast.core.files import File, FileStatus, Folder
from holdfast.engine import content_text, file_ingestion
from holdfast.engine.file_ingestion import FileIngestion
from holdfast.engine.file_removal import BROKEN_UPLOAD_SECONDS, FileRemoval
from holdfast.errors import OutcomeUnknown, StaleFile, StoreUnavailable
from holdfast.ports.services import Services
from holdfast.ports.store import Store, Transaction
from holdfast.usecases import uploads

TEXT = "".join(f"Line {number} of a text that is long enough.\n\n" for number in range(20))

# What happens, and whether the operation was committed by then.
FAULTS = [
    pytest.param(ServerDied, False, id="death before"),
    pytest.param(ServerDied, True, id="death after"),
    pytest.param(asyncio.CancelledError, True, id="cancelled"),
    pytest.param(lambda: StoreUnavailable("on purpose"), False, id="outage"),
    pytest.param(lambda: OutcomeUnknown("on purpose"), True, id="unknown outcome"),
]


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a small file has many transactions."""
    monkeypatch.setattr(uploads, "PART_BYTES", 300)
    monkeypatch.setattr(content_text, "PART_CHARS", 200)
    monkeypatch.setattr(content_text, "PARTS_AT_ONCE", 2)
    monkeypatch.setattr(file_ingestion, "PASSAGES_AT_ONCE", 3)


@pytest.fixture
def services(any_store: Store) -> Services:
    return replace(Rig(any_store, clock=MovableClock()).services, documents=ScriptedDocuments())


def open_in_agents(tx: Transaction, _services: Services, file: File) -> None:
    """Stands for the agents, and counts: in the store, so that it is undone with the transaction."""
    folder = tx.folders.get(file.organization_id, file.folder_id)
    tx.folders.save(structs.replace(folder, metadata={"opened": times_opened(folder) + 1}))


def times_opened(folder: Folder) -> int:
    return int((folder.metadata or {}).get("opened", 0))


async def count_opened(services: Services, folder: Folder) -> int:
    return times_opened(
        await services.store.read(lambda tx: tx.folders.get(folder.organization_id, folder.id))
    )


async def read_text(services: Services, file: File) -> str:
    return await services.store.read(lambda tx: tx.contents.read_text(file.content_id))


async def count_contents(services: Services) -> int:
    counted = select(func.count()).select_from(tables.contents)
    return await services.store.read(
        lambda tx: tx._connection.execute(counted).scalar_one()  # type: ignore[attr-defined] # no repository counts them
    )


def crashes(
    services: Services, fault: Callable[[], BaseException], *, is_committed: bool
) -> Iterator[tuple[Services, CrashingStore]]:
    """The services with a store that fails at the first operation, then at the second, and so on."""
    for at in count(1):
        store = CrashingStore(services.store, fault(), at, is_committed=is_committed)
        yield replace(services, store=store), store
        if store.operations < at:
            # The work ended before it could fail.
            assert at > 5
            return


@pytest.mark.parametrize(("fault", "is_committed"), FAULTS)
async def test_an_ingestion_goes_on_after_a_fault_at_each_point(
    services: Services, fault: Callable[[], BaseException], *, is_committed: bool
) -> None:
    folder = await make_folder(services, chunk_tokens=25)
    expected = [chunk.text for chunk in split_text(TEXT, folder.chunk_chars)]
    assert len(expected) > 6
    for number, (broken, _) in enumerate(crashes(services, fault, is_committed=is_committed)):
        # Not the same bytes: the text of those would be there already.
        data = TEXT + " " * number
        file = await upload(services, folder, data)
        try:
            await FileIngestion(broken, open_in_agents).process(file)
        except (ServerDied, asyncio.CancelledError, StoreUnavailable):
            await FileIngestion(services, open_in_agents).process(file)
        done = await read_file(services, file)
        assert (done.status, done.error_message) == (FileStatus.COMPLETED, None)
        assert done.total_chunks == done.chunks_stored == done.chunks_embedded == len(expected)
        passages = await list_passages(services, file)
        assert [passage.text for passage in passages] == expected
        assert await read_text(services, file) == data
        assert await count_opened(services, folder) == number + 1


@pytest.mark.parametrize(("fault", "is_committed"), FAULTS)
async def test_an_upload_is_stored_whole_or_not_at_all(
    services: Services, fault: Callable[[], BaseException], *, is_committed: bool
) -> None:
    clock = services.clock
    assert isinstance(clock, MovableClock)
    folder = await make_folder(services)
    for number, (broken, _) in enumerate(crashes(services, fault, is_committed=is_committed)):
        data = TEXT + " " * number
        name = f"{number}.txt"
        with suppress(ServerDied, asyncio.CancelledError, StoreUnavailable):
            await upload(broken, folder, data, name)
        # The client sends it again, as clients do.
        await upload(services, folder, data, name, on_duplicate=DuplicateHandling.SKIP)
        (file,) = [item for item in await list_files(services, folder) if item.name == name]
        await FileIngestion(services, lambda *_: None).process(file)
        assert (await read_file(services, file)).status is FileStatus.COMPLETED
        assert await read_text(services, file) == data
    # What the broken ones left is removed when it is clear that nobody needs it.
    clock.advance(BROKEN_UPLOAD_SECONDS + 1)
    await FileRemoval(services).remove_all()
    assert await count_contents(services) == len(await list_files(services, folder))


async def test_two_servers_never_process_one_file_twice(services: Services) -> None:
    """A leader that was paused goes on while its successor works."""
    folder = await make_folder(services, chunk_tokens=25)
    for number in range(5):
        file = await upload(services, folder, TEXT + " " * number)
        both = [FileIngestion(services, open_in_agents).process(file) for _ in range(2)]
        outcomes = await asyncio.gather(*both, return_exceptions=True)
        assert [error for error in outcomes if not isinstance(error, StaleFile | None)] == []
        # Each may have stopped the other.
        await FileIngestion(services, open_in_agents).process(file)
        passages = await list_passages(services, file)
        expected = [chunk.text for chunk in split_text(TEXT, folder.chunk_chars)]
        assert [passage.text for passage in passages] == expected
        assert (await read_file(services, file)).status is FileStatus.COMPLETED
        assert await count_opened(services, folder) == number + 1


async def test_a_file_that_stops_the_server_each_time_is_given_up(services: Services) -> None:
    folder = await make_folder(services)
    file = await upload(services, folder, TEXT)
    for _ in range(file_ingestion.MAX_ATTEMPTS):
        dying = replace(
            services, store=CrashingStore(services.store, ServerDied(), 2, is_committed=False)
        )
        with pytest.raises(ServerDied):
            await FileIngestion(dying, lambda *_: None).process(file)
    await FileIngestion(services, lambda *_: None).process(file)
    ended = await read_file(services, file)
    assert ended.status is FileStatus.ERROR
    assert "5 times" in (ended.error_message or "")
