"""Vectors in the store: which texts wait for one, what becomes of them, and what a search finds."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import insert
from tests.support.stored_vectors import MODEL, add_with_vectors, prepare_search, query_vector
from tests.support.values import Make, ident, moment

from holdfast.adapters.store import tables
from holdfast.adapters.store.row_mapper import RowMapper
from holdfast.core.archives import Archive
from holdfast.core.embeddings import EmbeddedText, EmbeddingProgress, QueryVector, to_vector
from holdfast.core.files import Content, File, Folder
from holdfast.core.ids import DEFAULT_ORGANIZATION_ID
from holdfast.core.passages import PassageFilter
from holdfast.ports.store import Store

ORG = DEFAULT_ORGANIZATION_ID
MINUTE = timedelta(minutes=1)
OTHER_MODEL = "test/other"


async def add_archive(store: Store, make: Make, embedding: str | None = MODEL) -> Archive:
    archive = make.archive(embedding=embedding)
    await store.write(lambda tx: tx.archives.add(archive))
    return archive


async def find(
    store: Store, *vectors: QueryVector, limit: int = 10, query: str = "zzz", **where: Any
) -> list[str]:
    found = await store.read(
        lambda tx: tx.passages.search(ORG, PassageFilter(**where), query, limit, vectors)
    )
    return [item.passage.text for item in found]


@pytest.fixture(params=["bytes", "prepared"])
def is_prepared(request: pytest.FixtureRequest) -> bool:
    """Whether pgvector has its copy of the vectors."""
    return bool(request.param == "prepared")


def add_file(tx: Any) -> File:
    """A folder with one file."""
    common: dict[str, Any] = {"organization_id": ORG, "created_at": moment(1)}
    folder = Folder(
        id=ident("source", 1), name="f", updated_at=moment(1), embedding=MODEL, **common
    )
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
    passages = [make.passage(make.archive(), f"Part {number}.", **owner) for number in range(4)]
    stored = await any_store.write(lambda tx: tx.passages.add(passages, model=MODEL))

    async def progress() -> EmbeddingProgress:
        return await any_store.read(lambda tx: tx.passages.embedding_progress(file.id))

    assert await progress() == EmbeddingProgress(total=4, embedded=0, untried=4, failed=0)

    now = stored[-1].updated_at + MINUTE
    due = await any_store.read(lambda tx: tx.passage_vectors.list_due(now, 3))
    first, second, third = await any_store.write(lambda tx: tx.passage_vectors.claim(due, now))
    await any_store.write(
        lambda tx: tx.passage_vectors.save([EmbeddedText(first.position, MODEL, to_vector([1.0]))])
    )
    await any_store.write(lambda tx: tx.passage_vectors.record_failure([second], "late", now))
    await any_store.write(lambda tx: tx.passage_vectors.record_failure([third], "never", None))

    assert await progress() == EmbeddingProgress(
        total=4, embedded=1, untried=1, failed=2, given_up=1, error="never"
    )


async def test_passages_are_due_in_their_order_and_not_before_their_time(
    any_store: Store, make: Make
) -> None:
    archive = await add_archive(any_store, make)
    passages = [make.passage(archive, text) for text in ("One.", "Two.")]
    later = passages[-1].updated_at + MINUTE
    await any_store.write(lambda tx: tx.passages.add(passages, model=MODEL, due_at=later))

    async def due(at: Any) -> list[str]:
        found = await any_store.read(lambda tx: tx.passage_vectors.list_due(at, 10))
        return [item.text for item in found]

    assert await due(later - MINUTE) == []
    assert await any_store.read(lambda tx: tx.passage_vectors.next_due_at(later - MINUTE)) == later
    assert await due(later) == ["One.", "Two."]


async def test_a_text_is_claimed_by_one_server_only(any_store: Store, make: Make) -> None:
    archive = await add_archive(any_store, make)
    passage = make.passage(archive)
    await any_store.write(lambda tx: tx.passages.add([passage], model=MODEL))
    now = passage.updated_at
    due = await any_store.read(lambda tx: tx.passage_vectors.list_due(now, 10))

    claims = [
        await any_store.write(lambda tx: tx.passage_vectors.claim(due, now + MINUTE))
        for _ in range(2)
    ]

    assert [len(claimed) for claimed in claims] == [1, 0]
    assert claims[0][0].attempts == 1
    assert await any_store.read(lambda tx: tx.passage_vectors.list_due(now, 10)) == []
    await any_store.write(lambda tx: tx.passage_vectors.release(claims[0], now))
    assert len(await any_store.read(lambda tx: tx.passage_vectors.list_due(now, 10))) == 1


async def test_a_vector_is_stored_once_and_only_while_its_text_waits(
    any_store: Store, make: Make
) -> None:
    archive = await add_archive(any_store, make)
    kept, deleted = await any_store.write(
        lambda tx: tx.passages.add([make.passage(archive) for _ in range(2)], model=MODEL)
    )
    await any_store.write(lambda tx: tx.passages.delete(ORG, deleted.id))

    for numbers in ([1.0, 0.0], [0.0, 1.0]):
        embedded = [
            EmbeddedText(item.position, MODEL, to_vector(numbers)) for item in (kept, deleted)
        ]
        await any_store.write(lambda tx, new=embedded: tx.passage_vectors.save(new))  # type: ignore[misc]  # mypy does not see the default

    assert await find(any_store, query_vector(1.0, 0.0)) == [kept.text]
    assert (
        await any_store.read(lambda tx: tx.passage_vectors.find_dimensions(archive.id, MODEL)) == 2
    )
    assert await any_store.read(lambda tx: tx.passage_vectors.list_due(moment(9**6), 9)) == []


async def test_the_nearest_passages_come_first(
    any_store: Store, make: Make, is_prepared: bool
) -> None:
    archive = await add_archive(any_store, make)
    if is_prepared:
        await prepare_search(any_store, MODEL, 2)
    texts = {"far": (0.0, 5.0), "near": (9.0, 1.0), "opposite": (-1.0, 0.0), "next": (1.0, 1.0)}
    passages = [make.passage(archive, text) for text in texts]
    await add_with_vectors(any_store, passages, list(texts.values()))
    if is_prepared:
        await prepare_search(any_store, MODEL, 2)

    assert await find(any_store, query_vector(0.1, 0.0)) == ["near", "next", "far", "opposite"]
    assert await find(any_store, query_vector(0.1, 0.0), limit=2) == ["near", "next"]


async def test_words_and_vectors_together_decide(any_store: Store, make: Make) -> None:
    archive = await add_archive(any_store, make)
    passages = [make.passage(archive, text) for text in ("a pear tree", "an apple tree", "a boat")]
    await add_with_vectors(any_store, passages, [(1.0, 0.0), (0.8, 0.6), (0.0, 1.0)])

    found = await any_store.read(
        lambda tx: tx.passages.search(ORG, PassageFilter(), "apple", 10, [query_vector(1.0, 0.0)])
    )

    assert [item.passage.text for item in found] == ["an apple tree", "a pear tree", "a boat"]
    ranks = [(item.match.word_rank, item.match.vector_rank) for item in found]
    assert ranks == [(1, 2), (None, 1), (None, 3)]


async def test_filters_apply_before_the_limit(
    any_store: Store, make: Make, is_prepared: bool
) -> None:
    """The passage that matches is the farthest of 400, behind more than are looked up at first."""
    archive = await add_archive(any_store, make)
    numbers = range(400)
    passages = [make.passage(archive, f"p{number}") for number in numbers]
    tagged = make.passage(archive, "tagged", tags=("rare",), created_at=moment(-1_000))
    vectors = [(1.0, number / 1_000) for number in numbers]
    await add_with_vectors(any_store, [tagged, *passages], [(0.0, 1.0), *vectors])
    if is_prepared:
        await prepare_search(any_store, MODEL, 2)
    near = query_vector(1.0, 0.0)

    assert await find(any_store, near, limit=3) == ["p0", "p1", "p2"]
    assert await find(any_store, near, limit=3, tags=("rare",)) == ["tagged"]
    assert await find(any_store, near, limit=3, until=moment(-999)) == ["tagged"]


async def test_a_deleted_passage_never_comes_back(
    any_store: Store, make: Make, is_prepared: bool
) -> None:
    archive = await add_archive(any_store, make)
    passages = [make.passage(archive, text) for text in ("old", "new")]
    await add_with_vectors(any_store, passages, [(1.0, 0.0), (0.0, 1.0)])
    if is_prepared:
        await prepare_search(any_store, MODEL, 2)
    near = query_vector(1.0, 0.0)
    assert await find(any_store, near) == ["old", "new"]

    await any_store.write(lambda tx: tx.passages.delete(ORG, passages[0].id))
    assert await find(any_store, near) == ["new"]

    await add_with_vectors(any_store, [make.passage(archive, "newest")], [(1.0, 0.1)])
    assert await find(any_store, near) == ["newest", "new"]
    await any_store.write(lambda tx: tx.archives.delete(ORG, archive.id))
    assert await find(any_store, near) == []


async def test_a_query_is_compared_with_vectors_of_its_model_and_length_only(
    any_store: Store, make: Make
) -> None:
    first, second = [await add_archive(any_store, make, model) for model in (MODEL, OTHER_MODEL)]
    await add_with_vectors(any_store, [make.passage(first, "a")], [(1.0, 0.0)])
    await add_with_vectors(
        any_store, [make.passage(second, "b")], [(1.0, 0.0, 0.0)], model=OTHER_MODEL
    )
    of_other = query_vector(1.0, 0.0, 0.0, model=OTHER_MODEL)

    assert await find(any_store, query_vector(1.0, 0.0)) == ["a"]
    assert await find(any_store, of_other) == ["b"]
    assert sorted(await find(any_store, query_vector(1.0, 0.0), of_other)) == ["a", "b"]
    assert await find(any_store, query_vector(1.0, 0.0, 0.0)) == []
    assert await find(any_store, of_other, archive_ids=(first.id,)) == []


async def test_vectors_of_another_model_than_that_of_the_archive_are_not_searched(
    any_store: Store, make: Make
) -> None:
    """They are there while the archive changes its model."""
    archive = await add_archive(any_store, make)
    await add_with_vectors(any_store, [make.passage(archive)], [(1.0, 0.0)], model=OTHER_MODEL)

    assert await find(any_store, query_vector(1.0, 0.0, model=OTHER_MODEL)) == []


async def test_the_models_in_scope_are_those_of_the_archives_or_folders(
    any_store: Store, make: Make
) -> None:
    archives = [
        await add_archive(any_store, make, model) for model in (MODEL, OTHER_MODEL, MODEL, None)
    ]
    file = await any_store.write(add_file)

    async def models(**where: Any) -> dict[str, Sequence[str]]:
        found = await any_store.read(
            lambda tx: tx.passages.embedding_models(ORG, PassageFilter(**where))
        )
        return {model: sorted(ids) for model, ids in found.items()}

    first, second, third, _ = (archive.id for archive in archives)
    assert await models() == {MODEL: [first, third], OTHER_MODEL: [second]}
    assert await models(archive_ids=(second,)) == {OTHER_MODEL: [second]}
    assert await models(folder_ids=(file.folder_id,)) == {MODEL: [file.folder_id]}
