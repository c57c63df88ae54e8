"""Vectors in the store: which texts wait for one, and what becomes of them."""

from typing import Any

from sqlalchemy import insert
from tests.support.values import Make, ident, moment

from holdfast.adapters.store import tables
from holdfast.adapters.store.row_mapper import RowMapper
from holdfast.core.embeddings import EmbeddingProgress
from holdfast.core.files import Content, File, Folder
from holdfast.core.ids import DEFAULT_ORGANIZATION_ID
from holdfast.ports.store import Store

MODEL = "openai/text-embedding-3-small"


def add_file(tx: Any) -> File:
    """A folder with one file."""
    common: dict[str, Any] = {
        "organization_id": DEFAULT_ORGANIZATION_ID,
        "created_at": moment(1),
    }
    folder = Folder(id=ident("source", 1), name="f", updated_at=moment(1), **common)
    content = Content(id=ident("content", 1), format="text", **common)
    file = File(
        id=ident("file", 1),
        folder_id=folder.id,
        name="a.txt",
        original_name="a.txt",
        content_id=content.id,
        updated_at=moment(1),
        **common,
    )
    for value, table in (
        (folder, tables.folders),
        (content, tables.contents),
        (file, tables.files),
    ):
        tx._connection.execute(insert(table), RowMapper(type(value), table).to_row(value))
    return file


async def test_the_progress_of_a_file_counts_its_passages(any_store: Store, make: Make) -> None:
    file = await any_store.write(add_file)
    owner: dict[str, Any] = {"archive_id": None, "folder_id": file.folder_id, "file_id": file.id}
    archive = make.archive()
    passages = [make.passage(archive, f"Part {number}.", **owner) for number in range(3)]
    progress = lambda: any_store.read(lambda tx: tx.passages.embedding_progress(file.id))  # noqa: E731 - used often

    await any_store.write(lambda tx: tx.passages.add(passages, model=MODEL))

    assert await progress() == EmbeddingProgress(total=3, embedded=0, untried=3, failed=0)
