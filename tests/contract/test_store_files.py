"""What every Store guarantees for folders, files and what is in them, on each database."""

import asyncio
import hashlib
from datetime import timedelta
from functools import partial

import pytest
from msgspec.structs import replace
from sqlalchemy import func, select
from tests.support.values import Make, add_file, moment

from holdfast.adapters.store import tables
from holdfast.adapters.store.file_removal import PASSAGES_AT_ONCE
from holdfast.core.files import (
    Content,
    ContentStatus,
    File,
    FileStatus,
    Folder,
    FolderQuery,
    FolderUsage,
    count_lines,
    split_into_parts,
)
from holdfast.core.ids import DEFAULT_ORGANIZATION_ID
from holdfast.core.paging import Order, Page
from holdfast.core.passages import Passage, PassageFilter
from holdfast.errors import AlreadyExists, NotFound
from holdfast.ports.store import Store, Transaction

ORG = DEFAULT_ORGANIZATION_ID
OTHER_ORG = "org-00000000-0000-4000-8000-000000000001"
OLDEST_FIRST = Page(limit=50, order=Order.ASC)


@pytest.fixture
async def folder(any_store: Store, make: Make) -> Folder:
    folder = make.folder(name="papers")
    await any_store.write(lambda tx: tx.folders.add(folder))
    return folder


async def test_a_folder_is_read_back_as_it_was_written(any_store: Store, make: Make) -> None:
    folder = make.folder(
        description="d",
        instructions="i",
        metadata={"a": [1]},
        embedding="openai/x",
        embedding_config={"embedding_dim": 3},
        created_by_id="user-1",
    )
    await any_store.write(lambda tx: tx.folders.add(folder))
    assert await any_store.read(lambda tx: tx.folders.get(ORG, folder.id)) == folder
    changed = replace(folder, name="new", instructions=None, updated_at=moment(99))
    await any_store.write(lambda tx: tx.folders.save(changed))
    assert await any_store.read(lambda tx: tx.folders.find(ORG, [folder.id])) == [changed]
    assert await any_store.read(lambda tx: tx.folders.find_by_name(ORG, "new")) == changed
    assert await any_store.read(lambda tx: tx.folders.find_by_name(ORG, "NEW")) is None


async def test_a_folder_of_another_organisation_is_not_found(
    any_store: Store, folder: Folder
) -> None:
    def work(tx: Transaction) -> None:
        with pytest.raises(NotFound, match=f"Folder with ID {folder.id} not found"):
            tx.folders.get(OTHER_ORG, folder.id)
        with pytest.raises(NotFound):
            tx.folders.lock(OTHER_ORG, folder.id)
        with pytest.raises(NotFound):
            tx.folders.save(replace(folder, organization_id=OTHER_ORG))
        with pytest.raises(NotFound):
            tx.folders.delete(OTHER_ORG, folder.id, moment(1))
        assert tx.folders.count(OTHER_ORG) == 0

    await any_store.write(work)


async def test_two_folders_of_an_organisation_have_different_names(
    any_store: Store, make: Make, folder: Folder
) -> None:
    same, other = make.folder(name=folder.name), make.folder()
    with pytest.raises(AlreadyExists, match="folder with this name"):
        await any_store.write(lambda tx: tx.folders.add(same))
    elsewhere = replace(same, organization_id=OTHER_ORG)
    await any_store.write(lambda tx: tx.folders.add(elsewhere))
    await any_store.write(lambda tx: tx.folders.add(other))
    with pytest.raises(AlreadyExists):
        await any_store.write(lambda tx: tx.folders.save(replace(other, name=folder.name)))


async def test_folders_are_listed_by_a_part_of_their_name(any_store: Store, make: Make) -> None:
    names = ("test", "TESTS", "a%b", "other")
    folders = [make.folder(name=name) for name in names]

    def work(tx: Transaction) -> None:
        for folder in folders:
            tx.folders.add(folder)

    await any_store.write(work)

    def names_of(tx: Transaction, part: str | None, page: Page = OLDEST_FIRST) -> list[str]:
        query = FolderQuery(page=page, name_contains=part)
        return [folder.name for folder in tx.folders.list(ORG, query)]

    def read(tx: Transaction) -> None:
        assert names_of(tx, "es") == ["test", "TESTS"]
        assert names_of(tx, "%") == ["a%b"]
        assert names_of(tx, None, Page(limit=2, order=Order.DESC)) == ["other", "a%b"]
        after = Page(limit=2, order=Order.ASC, after=folders[1].id)
        assert names_of(tx, None, after) == ["a%b", "other"]
        assert tx.folders.count(ORG) == 4
        assert [folder.name for folder in tx.folders.list_all(ORG)] == list(names)

    await any_store.read(read)


async def test_a_deleted_folder_and_its_files_are_gone_at_once(
    any_store: Store, make: Make, folder: Folder
) -> None:
    agent = make.agent()
    file = await add_file(any_store, make, folder, "text")
    await any_store.write(lambda tx: tx.agents.add(agent))
    await link(any_store, agent.id, folder.id, file.id)
    await any_store.write(lambda tx: tx.passages.add([make_passage(make, file)]))
    await any_store.write(lambda tx: tx.folders.delete(ORG, folder.id, moment(50)))

    def read(tx: Transaction) -> None:
        with pytest.raises(NotFound):
            tx.folders.get(ORG, folder.id)
        with pytest.raises(NotFound):
            tx.files.get(ORG, file.id)
        assert tx.folders.list(ORG, FolderQuery(page=OLDEST_FIRST)) == []
        assert tx.folders.list_all(ORG) == []
        assert tx.folders.count(ORG) == 0
        assert tx.folders.usage(ORG) == {}
        assert tx.folders.agent_ids(folder.id) == []
        assert tx.files.list_of_folders([folder.id]) == []
        where = PassageFilter(folder_ids=(folder.id,))
        assert tx.passages.list(ORG, where, OLDEST_FIRST) == []

    await any_store.read(read)
    # Its name is free.
    again = make.folder(name=folder.name)
    await any_store.write(lambda tx: tx.folders.add(again))
    await remove_all(any_store)
    assert await count_rows(any_store) == {
        "folders": 1,
        "files": 0,
        "contents": 0,
        "content_texts": 0,
        "content_bytes": 0,
        "passages": 0,
        "agent_files": 0,
    }


async def test_the_agents_of_a_folder_are_listed_in_pages(
    any_store: Store, make: Make, folder: Folder
) -> None:
    agents = [make.agent() for _ in range(3)]

    def work(tx: Transaction) -> None:
        for agent in agents:
            tx.agents.add(agent)

    await any_store.write(work)
    for agent in agents:
        await link(any_store, agent.id, folder.id)

    def read(tx: Transaction) -> None:
        oldest_first = [agent.id for agent in agents]
        assert tx.folders.agent_ids(folder.id) == sorted(oldest_first)
        newest = Page(limit=2)
        assert tx.folders.page_of_agent_ids(ORG, folder.id, newest) == oldest_first[:0:-1]
        rest = Page(limit=2, after=oldest_first[1])
        assert tx.folders.page_of_agent_ids(ORG, folder.id, rest) == oldest_first[:1]
        with pytest.raises(NotFound, match="No Agent found with id nobody"):
            tx.folders.page_of_agent_ids(ORG, folder.id, Page(limit=2, after="nobody"))

    await any_store.read(read)


async def test_a_file_is_read_back_as_it_was_written(
    any_store: Store, make: Make, folder: Folder
) -> None:
    content = make.content()
    file = make.file(
        folder,
        content,
        media_type="text/plain",
        size=7,
        error_message="e",
        total_chunks=3,
        chunks_stored=2,
        chunks_embedded=1,
        attempts=1,
        status=FileStatus.EMBEDDING,
    )
    await any_store.write(lambda tx: tx.contents.add(content))
    await any_store.write(lambda tx: tx.files.add(file))
    assert await any_store.read(lambda tx: tx.files.get(ORG, file.id)) == file
    assert await any_store.write(lambda tx: tx.files.lock(ORG, file.id)) == file
    changed = replace(file, status=FileStatus.COMPLETED)
    await any_store.write(lambda tx: tx.files.save(changed))
    assert await any_store.read(lambda tx: tx.files.find(ORG, ["nothing", file.id])) == [changed]
    with pytest.raises(NotFound, match=f"File with id={file.id} not found"):
        await any_store.read(lambda tx: tx.files.get(OTHER_ORG, file.id))


async def test_files_are_found_by_their_names(any_store: Store, make: Make, folder: Folder) -> None:
    other = make.folder()
    await any_store.write(lambda tx: tx.folders.add(other))
    first = await add_file(any_store, make, folder, "1", name="a.txt")
    second = await add_file(any_store, make, folder, "2", name="a_(1).txt", original_name="a.txt")
    replacing = await add_file(any_store, make, folder, "3", name="a.txt", replaces_id=first.id)
    await add_file(any_store, make, other, "4", name="a.txt")

    def read(tx: Transaction) -> None:
        uploaded = tx.files.list_by_original_name(folder.id, "a.txt")
        assert uploaded == [first, second, replacing]
        assert tx.files.list_named(folder.id, "a.txt") == [first, replacing]
        assert tx.files.list_names(folder.id, "a_") == {"a_(1).txt"}
        assert tx.files.list_names(folder.id, "A") == set()
        assert tx.files.list_of_folders([folder.id]) == [first, second]
        assert tx.files.list(ORG, folder.id, Page(limit=2)) == [replacing, second]
        assert tx.folders.usage(ORG) == {folder.id: FolderUsage(3, 3), other.id: FolderUsage(1, 1)}

    await any_store.read(read)


async def test_two_transactions_never_give_one_name_to_two_files(
    any_store: Store, make: Make, folder: Folder
) -> None:
    """Each looks whether the name is free, without a lock. The store refuses the second, and runs it again."""
    content = make.content()
    files = [make.file(folder, content, name="a.txt") for _ in range(3)]
    await any_store.write(lambda tx: tx.contents.add(content))

    def add(tx: Transaction, file: File) -> None:
        taken = len(tx.files.list_by_original_name(folder.id, "a.txt"))
        name = f"a_({taken}).txt" if taken else "a.txt"
        tx.files.add(replace(file, name=name))

    await asyncio.gather(*(any_store.write(partial(add, file=file)) for file in files))
    names = await any_store.read(lambda tx: tx.files.list_names(folder.id, ""))
    assert names == {"a.txt", "a_(1).txt", "a_(2).txt"}


async def test_unfinished_files_are_listed_oldest_first(
    any_store: Store, make: Make, folder: Folder
) -> None:
    young = await add_file(
        any_store, make, folder, "", status=FileStatus.PARSING, created_at=moment(900)
    )
    old = await add_file(
        any_store, make, folder, "", status=FileStatus.PARSING, created_at=moment(800)
    )
    embedding = await add_file(any_store, make, folder, "", status=FileStatus.EMBEDDING)
    for status in (FileStatus.COMPLETED, FileStatus.ERROR):
        await add_file(any_store, make, folder, "", status=status)

    def read(tx: Transaction) -> None:
        assert tx.files.list_in_status([FileStatus.PARSING], 9) == [old, young]
        assert tx.files.list_in_status([FileStatus.PARSING], 1) == [old]
        assert tx.files.list_in_status([FileStatus.EMBEDDING], 9) == [embedding]

    await any_store.read(read)


async def test_a_large_deleted_file_is_hidden_at_once_and_removed_in_parts(
    any_store: Store, make: Make, folder: Folder
) -> None:
    file = await add_file(any_store, make, folder, "text", name="a.txt")
    passages = [make_passage(make, file) for _ in range(PASSAGES_AT_ONCE + 250)]
    await any_store.write(lambda tx: tx.passages.add(passages))
    await any_store.write(lambda tx: tx.files.delete(ORG, file.id))
    with pytest.raises(NotFound):
        await any_store.write(lambda tx: tx.files.save(file))
    # Its name is free while its rows are still there.
    again = await add_file(any_store, make, folder, "text", name="a.txt")
    assert (await count_rows(any_store))["passages"] == 250
    left = []
    while await any_store.write(lambda tx: tx.removals.remove_some(100)):
        left.append((await count_rows(any_store))["passages"])
    assert left[:3] == [150, 50, 0]
    rows = await count_rows(any_store)
    assert (rows["files"], rows["contents"]) == (1, 1)
    assert await any_store.read(lambda tx: tx.files.list_named(folder.id, "a.txt")) == [again]


async def test_a_content_goes_with_its_last_file(
    any_store: Store, make: Make, folder: Folder
) -> None:
    content = make.content()
    files = [make.file(folder, content) for _ in range(2)]

    def work(tx: Transaction) -> None:
        tx.contents.add(content)
        for number in range(5):
            tx.contents.add_bytes(content.id, number, b"x")
        for file in files:
            tx.files.add(file)

    await any_store.write(work)
    await any_store.write(lambda tx: tx.files.delete(ORG, files[0].id))
    await remove_all(any_store)
    assert (await count_rows(any_store))["content_bytes"] == 5
    await any_store.write(lambda tx: tx.files.delete(ORG, files[1].id))
    await any_store.write(lambda tx: tx.removals.remove_some(100))
    # The same bytes may come again while the old rows are still there.
    found = await any_store.write(lambda tx: tx.contents.find(ORG, content.digest or "", "text"))
    assert found is None
    assert (await count_rows(any_store))["content_bytes"] == 5
    left = []
    while await any_store.write(lambda tx: tx.removals.remove_some(100)):
        left.append((await count_rows(any_store))["content_bytes"])
    assert left == [3, 1, 0]
    assert (await count_rows(any_store))["contents"] == 0


async def test_bytes_and_text_are_read_back_in_parts(any_store: Store, make: Make) -> None:
    content = make.content(status=ContentStatus.RECEIVING, digest=None)
    data = bytes(range(256))
    await any_store.write(lambda tx: tx.contents.add(content))
    await any_store.write(lambda tx: tx.contents.add_bytes(content.id, 0, data))
    await any_store.write(lambda tx: tx.contents.add_bytes(content.id, 1, b"end"))
    text = "one\n\n  three ☂\n" + "x" * 50 + "\nfive"
    parts = list(split_into_parts(text, 16))
    assert max(len(part.text) for part in parts) <= 16
    await any_store.write(lambda tx: tx.contents.add_text(content.id, parts))
    digest = hashlib.sha256(data).hexdigest()
    stored = replace(content, status=ContentStatus.STORED, digest=digest, lines=5)
    await any_store.write(lambda tx: tx.contents.save(stored))

    def read(tx: Transaction) -> None:
        assert tx.contents.get(content.id) == stored
        assert tx.contents.read_bytes(content.id, 0) == data
        assert tx.contents.read_bytes(content.id, 1) == b"end"
        assert tx.contents.read_bytes(content.id, 2) is None
        assert tx.contents.read_text(content.id) == text
        assert tx.contents.read_text_parts(content.id, 1, 2) == parts[1:3]

    await any_store.read(read)
    assert await any_store.write(lambda tx: tx.contents.find(ORG, digest, "text")) == stored
    assert await any_store.write(lambda tx: tx.contents.find(ORG, digest, "html")) is None
    assert await any_store.write(lambda tx: tx.contents.delete_text(content.id, 2)) == 2


@pytest.mark.parametrize("part_chars", [1, 2, 7, 16, 1000])
async def test_a_window_of_lines_is_read_whatever_the_parts_are(
    any_store: Store, make: Make, part_chars: int
) -> None:
    text = "one\n\nthree\n" + "x" * 30 + "\n\n\nseven\n"
    lines = text.splitlines(keepends=True)
    content = make.content(lines=count_lines(text))
    parts = list(split_into_parts(text, part_chars))
    await any_store.write(lambda tx: tx.contents.add(content))
    await any_store.write(lambda tx: tx.contents.add_text(content.id, parts))

    def read(tx: Transaction) -> None:
        for first in range(1, 9):
            for last in (*range(first, 9), None):
                expected = "".join(lines[first - 1 : last])
                assert tx.contents.read_lines(content.id, first, last) == expected
                for most in (0, 1, 5):
                    shown = tx.contents.read_lines(content.id, first, last, max_chars=most)
                    assert shown == expected[:most]

    await any_store.read(read)


async def test_broken_uploads_are_listed(any_store: Store, make: Make) -> None:
    broken = make.content(status=ContentStatus.RECEIVING, digest=None)
    stored = make.content()
    young = make.content(
        status=ContentStatus.RECEIVING, digest=None, created_at=moment(0) + timedelta(hours=2)
    )
    for content in (broken, stored, young):
        await any_store.write(partial(add_content, content=content))
    before = moment(0) + timedelta(hours=1)
    listed = await any_store.read(lambda tx: tx.contents.list_broken_uploads(before, 9))
    assert listed == [broken]
    await any_store.write(lambda tx: tx.contents.delete(broken.id))
    await remove_all(any_store)
    assert (await count_rows(any_store))["contents"] == 2


def add_content(tx: Transaction, content: Content) -> None:
    tx.contents.add(content)


def make_passage(make: Make, file: File) -> Passage:
    return replace(
        make.passage(make.archive(), "a chunk of a file"),
        archive_id=None,
        folder_id=file.folder_id,
        file_id=file.id,
    )


async def remove_all(store: Store) -> None:
    while await store.write(lambda tx: tx.removals.remove_some(100)):
        pass


async def link(store: Store, agent_id: str, folder_id: str, file_id: str | None = None) -> None:
    folder_row = {"agent_id": agent_id, "folder_id": folder_id, "attached_at": moment(1)}
    file_row = {
        "id": f"file_agent-{file_id}",
        "agent_id": agent_id,
        "file_id": file_id,
        "is_open": True,
        "last_accessed_at": moment(1),
        "created_at": moment(1),
    }

    def work(tx: Transaction) -> None:
        connection = tx._connection  # type: ignore[attr-defined] # the rows belong to another repository
        connection.execute(tables.agent_folders.insert(), folder_row)
        if file_id is not None:
            connection.execute(tables.agent_files.insert(), file_row)

    await store.write(work)


async def count_rows(store: Store) -> dict[str, int]:
    counted = (
        tables.folders,
        tables.files,
        tables.contents,
        tables.content_texts,
        tables.content_bytes,
        tables.passages,
        tables.agent_files,
    )

    def work(tx: Transaction) -> dict[str, int]:
        connection = tx._connection  # type: ignore[attr-defined] # rows that no repository shows
        return {
            table.name: connection.execute(select(func.count()).select_from(table)).scalar_one()
            for table in counted
        }

    return await store.read(work)
