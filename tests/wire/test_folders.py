"""Folders and their files (memory-v1 §5). What agents see of them is in another file."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import httpx
import pytest
from letta_client import (
    APIStatusError,
    BadRequestError,
    ConflictError,
    Letta,
    NotFoundError,
    UnprocessableEntityError,
)
from letta_client.types.folders import FileListResponse
from tests.support.client_objects import as_dict
from tests.support.wire_folders import MakeFolder, folders_of_test, wait_for_file

pytestmark = [pytest.mark.slow, pytest.mark.both_databases]

UNKNOWN_FOLDER = "source-99999999-9999-4999-8999-999999999999"
UNKNOWN_FILE = "file-99999999-9999-4999-8999-999999999999"
BROKEN_PDF = b"%PDF-1.7\n1 0 obj\n<< /Type /Catalog /Pages 2 0 R >>\nendobj\ntrailer"


@pytest.fixture
def make_folder(client: Letta) -> Iterator[MakeFolder]:
    with folders_of_test(client) as make:
        yield make


def upload(client: Letta, folder_id: str, file_name: str, data: bytes, **options: Any) -> str:
    uploaded = client.folders.files.upload(folder_id, file=(file_name, data), **options)
    assert uploaded.id is not None
    return uploaded.id


def list_files(client: Letta, folder_id: str) -> list[FileListResponse]:
    return list(client.folders.files.list(folder_id, order="asc"))


def names(client: Letta, folder_id: str) -> list[str | None]:
    return [file.file_name for file in list_files(client, folder_id)]


@pytest.mark.memory(50)
def test_a_folder_needs_nothing_but_a_name_that_is_free(
    client: Letta, make_folder: MakeFolder
) -> None:
    name = f"f {uuid4().hex}"
    folder = make_folder(name=name)
    assert folder.id.startswith("source-")
    assert as_dict(folder)["embedding_config"] is None
    seen: list[httpx.Request] = []
    retrying = client.with_options(max_retries=2)
    retrying._client.event_hooks["request"] = [seen.append]
    try:
        with pytest.raises(ConflictError, match=f"Folder with name '{name}' already exists"):
            retrying.folders.create(name=name)
    finally:
        retrying._client.event_hooks["request"] = []
    assert len(seen) == 1


def test_what_a_folder_was_given_is_echoed(client: Letta, make_folder: MakeFolder) -> None:
    given = {"description": "d", "instructions": "i", "metadata": {"a": [1]}}
    folder = make_folder(
        **given, embedding="openai/text-embedding-3-large", embedding_chunk_size=500
    )
    shown = as_dict(client.folders.retrieve(folder.id))
    assert {key: shown[key] for key in given} == given
    assert shown["embedding_config"]["handle"] == "openai/text-embedding-3-large"
    assert shown["embedding_config"]["embedding_dim"] == 3072
    assert shown["embedding_config"]["embedding_chunk_size"] == 500
    with pytest.raises(BadRequestError, match="Embedding model nothing not found"):
        client.folders.create(name=f"f {uuid4().hex}", embedding="nothing")


def test_a_folder_is_changed_and_deleted(client: Letta, make_folder: MakeFolder) -> None:
    folder = make_folder(description="old", metadata={"a": 1, "b": 2})
    renamed = client.folders.update(folder.id, name=f"{folder.name} new", metadata={"c": 3})
    assert (renamed.description, renamed.metadata) == ("old", {"c": 3})
    file_id = upload(client, folder.id, "a.txt", b"text")
    shown = client.folders.files.upload(folder.id, file=("b.txt", b"other"))
    # Names of files follow the name of their folder.
    assert shown.file_name == f"{renamed.name}/b.txt"
    assert client.folders.delete(folder.id) is None
    requests: list[Callable[[], object]] = [
        lambda: client.folders.retrieve(folder.id),
        lambda: client.folders.delete(folder.id),
        lambda: client.folders.files.list(folder.id),
        lambda: client.folders.files.upload(folder.id, file=("c.txt", b"")),
        lambda: client.folders.files.retrieve(file_id, folder_id=folder.id),
        lambda: client.folders.agents.list(folder.id),
    ]
    for request in requests:
        with pytest.raises(NotFoundError):
            request()
    again = make_folder(name=renamed.name)
    assert names(client, again.id) == []


def test_a_name_of_another_folder_cannot_be_taken(client: Letta, make_folder: MakeFolder) -> None:
    first, second = make_folder(), make_folder()
    with pytest.raises(ConflictError, match="already exists"):
        client.folders.update(second.id, name=first.name)
    assert client.folders.update(first.id, name=first.name).name == first.name


@pytest.mark.memory(67)
def test_folders_are_found_by_a_part_of_their_name(client: Letta, make_folder: MakeFolder) -> None:
    mark = uuid4().hex
    folders = [make_folder(name=f"{mark} test {number}") for number in range(5)]
    make_folder(name="other")
    found = client.folders.list(name=f"{mark.upper()} TES", limit=2)
    assert [folder.id for folder in found] == [folder.id for folder in folders]
    newest_first = client.folders.list(name=mark, order="desc")
    assert [folder.id for folder in newest_first] == [folder.id for folder in folders[::-1]]


@pytest.mark.memory(67)
def test_a_folder_without_agents_lists_none(client: Letta, make_folder: MakeFolder) -> None:
    assert client.folders.agents.list(make_folder().id) == []
    with pytest.raises(NotFoundError):
        client.folders.agents.list(UNKNOWN_FOLDER)


def test_malformed_and_unknown_ids_are_refused(client: Letta, make_folder: MakeFolder) -> None:
    folder = make_folder()
    with pytest.raises(UnprocessableEntityError):
        client.folders.retrieve("nope")
    with pytest.raises(NotFoundError):
        client.folders.retrieve(UNKNOWN_FOLDER)
    with pytest.raises(NotFoundError, match=f"File with id={UNKNOWN_FILE} not found in folder"):
        client.folders.files.retrieve(UNKNOWN_FILE, folder_id=folder.id)
    with pytest.raises(NotFoundError):
        client.folders.files.delete(UNKNOWN_FILE, folder_id=folder.id)
    with pytest.raises(UnprocessableEntityError):
        client.folders.create(name=" ")


@pytest.mark.memory(51, 52)
def test_an_uploaded_file_is_processed(client: Letta, make_folder: MakeFolder) -> None:
    folder = make_folder()
    uploaded = client.folders.files.upload(folder.id, file=("test.txt", b"test"))
    assert uploaded.processing_status in ("parsing", "embedding", "completed")
    assert uploaded.file_name == f"{folder.name}/test.txt"
    done = wait_for_file(client, folder.id, uploaded.id or "")
    assert done.processing_status == "completed"
    assert (done.error_message, done.total_chunks, done.chunks_embedded) == (None, 1, 1)
    assert done.content == "test"
    (listed,) = list_files(client, folder.id)
    assert listed.file_name == "test.txt"
    assert listed.original_file_name == "test.txt"
    assert listed.source_id == folder.id
    assert listed.file_size == 4
    assert listed.file_type == "text/plain"
    assert listed.content is None
    (with_text,) = client.folders.files.list(folder.id, include_content=True)
    assert with_text.content == "test"


@pytest.mark.memory(53)
def test_a_name_that_is_taken_gets_a_number(client: Letta, make_folder: MakeFolder) -> None:
    folder = make_folder()
    ids = [upload(client, folder.id, "test.txt", b"%d" % number) for number in range(3)]
    assert names(client, folder.id) == ["test.txt", "test_(1).txt", "test_(2).txt"]
    assert {file.original_file_name for file in list_files(client, folder.id)} == {"test.txt"}
    client.folders.files.delete(ids[1], folder_id=folder.id)
    upload(client, folder.id, "test.txt", b"3")
    assert names(client, folder.id) == ["test.txt", "test_(2).txt", "test_(1).txt"]


def test_many_uploads_of_one_name_at_once_get_different_names(
    client: Letta, make_folder: MakeFolder
) -> None:
    folder = make_folder()
    with ThreadPoolExecutor(8) as threads:
        done = [threads.submit(upload, client, folder.id, "a.txt", b"same") for _ in range(8)]
        ids = {future.result() for future in done}
    expected = {"a.txt", *(f"a_({number}).txt" for number in range(1, 8))}
    assert set(names(client, folder.id)) == expected
    assert {wait_for_file(client, folder.id, file_id).content for file_id in ids} == {"same"}


@pytest.mark.memory(54)
def test_a_second_file_of_a_name_is_handled_as_asked(
    client: Letta, make_folder: MakeFolder
) -> None:
    folder = make_folder()
    first = upload(client, folder.id, "a.txt", b"first")
    with pytest.raises(
        BadRequestError, match=f"File 'a.txt' already exists in folder '{folder.name}'"
    ):
        upload(client, folder.id, "a.txt", b"second", duplicate_handling="error")
    skipped = client.folders.files.with_raw_response.upload(
        folder.id, file=("a.txt", b"second"), duplicate_handling="skip"
    )
    assert skipped.headers["X-Upload-Result"] == "skipped"
    assert skipped.parse().id == first
    assert names(client, folder.id) == ["a.txt"]
    second = upload(client, folder.id, "a.txt", b"second", duplicate_handling="replace")
    assert second != first
    assert wait_for_file(client, folder.id, second).content == "second"
    (left,) = list_files(client, folder.id)
    assert (left.id, left.file_name) == (second, "a.txt")


def test_a_file_is_replaced_only_when_the_new_one_has_a_text(
    client: Letta, make_folder: MakeFolder
) -> None:
    folder = make_folder()
    first = upload(client, folder.id, "a.txt", b"first")
    # The type that is declared says that it is a PDF, whatever its name is.
    file = ("a.txt", BROKEN_PDF, "application/pdf")
    broken = client.folders.files.upload(folder.id, file=file, duplicate_handling="replace").id
    assert wait_for_file(client, folder.id, broken or "").processing_status == "error"
    assert wait_for_file(client, folder.id, first).content == "first"
    assert [file.id for file in list_files(client, folder.id)] == [first, broken]


@pytest.mark.memory(55)
def test_files_that_have_no_text_are_refused_or_say_why(
    client: Letta, make_folder: MakeFolder
) -> None:
    folder = make_folder()
    with pytest.raises(APIStatusError, match="Unsupported file type") as refused:
        upload(client, folder.id, "a.png", b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR")
    assert refused.value.status_code == 415
    empty = wait_for_file(client, folder.id, upload(client, folder.id, "empty.txt", b""))
    assert (empty.processing_status, empty.total_chunks, empty.content) == ("completed", 0, "")
    broken = wait_for_file(client, folder.id, upload(client, folder.id, "b.pdf", BROKEN_PDF))
    assert broken.processing_status == "error"
    assert broken.error_message
    good = wait_for_file(client, folder.id, upload(client, folder.id, "good.txt", b"good"))
    assert good.processing_status == "completed"


def test_names_are_made_safe(client: Letta, make_folder: MakeFolder) -> None:
    folder = make_folder()
    upload(client, folder.id, "../../etc/pass<w>d.txt", b"x")
    upload(client, folder.id, "x.txt", b"x", name="deep/er name.txt")
    assert names(client, folder.id) == ["passwd.txt", "deep/er name.txt"]
    with pytest.raises(BadRequestError, match=r"cannot start with '\.'"):
        upload(client, folder.id, ".hidden.txt", b"x")


def test_the_passages_of_a_folder_know_their_lines(
    client: Letta, make_folder: MakeFolder, http: httpx.Client
) -> None:
    folder = make_folder(embedding_chunk_size=25)
    text = "\n".join(f"line {number} is here" for number in range(1, 41))
    file = wait_for_file(client, folder.id, upload(client, folder.id, "lines.txt", text.encode()))
    answer = http.get(f"/v1/folders/{folder.id}/passages", params={"order": "asc"})
    passages = answer.json()
    assert len(passages) == file.total_chunks
    assert len(passages) > 5
    lines = text.split("\n")
    for passage in passages:
        where = passage["metadata"]
        assert passage["text"].split("\n")[0] in lines[where["start_line"] - 1]
        assert passage["source_id"] == folder.id
        assert passage["file_id"] == file.id
        assert passage["file_name"] == f"{folder.name}/lines.txt"
    starts = [passage["metadata"]["start_line"] for passage in passages]
    assert starts == sorted(starts)
    client.folders.files.delete(file.id or "", folder_id=folder.id)
    assert http.get(f"/v1/folders/{folder.id}/passages").json() == []


def test_sources_are_the_old_name_of_folders(
    client: Letta, make_folder: MakeFolder, http: httpx.Client
) -> None:
    folder = make_folder()
    other = make_folder()
    source = http.get(f"/v1/sources/{folder.id}").json()
    assert (source["id"], source["vector_db_provider"]) == (folder.id, "native")
    assert {folder.id, other.id} <= {item["id"] for item in http.get("/v1/sources/").json()}
    sent = {"file": ("old.txt", b"old")}
    file = http.post(f"/v1/sources/{folder.id}/upload", files=sent).json()
    assert file["file_name"] == f"{folder.name}/old.txt"
    wait_for_file(client, folder.id, file["id"])
    listed = http.get(f"/v1/sources/{folder.id}/files").json()
    assert [item["id"] for item in listed] == [file["id"]]
    # The folder in the path is not looked at.
    found = http.get(f"/v1/sources/{other.id}/files/{file['id']}", params={"include_content": True})
    assert found.json()["content"] == "old"
    assert http.delete(f"/v1/sources/{folder.id}/{file['id']}").status_code == 204
    assert http.delete(f"/v1/sources/{other.id}").json() is None


def test_folders_are_counted_and_summed_up(
    make_folder: MakeFolder, client: Letta, http: httpx.Client
) -> None:
    before = http.get("/v1/folders/count").json()
    folder = make_folder()
    upload(client, folder.id, "a.txt", b"12345")
    upload(client, folder.id, "b.txt", b"12345")
    assert http.get("/v1/folders/count").json() == before + 1
    assert http.get(f"/v1/folders/name/{folder.name}").json() == folder.id
    assert http.get("/v1/folders/name/nobody").status_code == 404
    short = http.get("/v1/folders/metadata").json()
    assert (short["total_sources"], short["sources"]) == (before + 1, [])
    detailed = http.get(
        "/v1/folders/metadata", params={"include_detailed_per_source_metadata": True}
    ).json()
    (mine,) = [item for item in detailed["sources"] if item["source_id"] == folder.id]
    assert (mine["file_count"], mine["total_size"]) == (2, 10)
    assert [item["file_name"] for item in mine["files"]] == ["a.txt", "b.txt"]


def test_a_file_of_another_folder_is_not_found(client: Letta, make_folder: MakeFolder) -> None:
    folder, other = make_folder(), make_folder()
    file_id = upload(client, folder.id, "a.txt", b"x")
    with pytest.raises(NotFoundError):
        client.folders.files.retrieve(file_id, folder_id=other.id)
    with pytest.raises(NotFoundError):
        client.folders.files.delete(file_id, folder_id=other.id)
    assert names(client, folder.id) == ["a.txt"]


def test_files_are_listed_in_pages(client: Letta, make_folder: MakeFolder) -> None:
    folder = make_folder()
    ids = [upload(client, folder.id, f"{number}.txt", b"x") for number in range(5)]
    listed = [file.id for file in client.folders.files.list(folder.id, limit=2)]
    assert listed == ids[::-1]


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ({}, 422),
        ({"files": {"other": ("a.txt", b"x")}}, 422),
        ({"files": {"file": ("a.txt", b"x")}, "params": {"duplicate_handling": "maybe"}}, 422),
        ({"data": {"file": "text"}}, 422),
        ({"content": b"junk", "headers": {"content-type": "multipart/form-data"}}, 400),
        (
            {"content": b"junk", "headers": {"content-type": "multipart/form-data; boundary=x"}},
            400,
        ),
        ({"files": [("file", ("a.txt", b"x")), ("file", ("b.txt", b"x"))]}, 400),
    ],
    ids=["empty", "other name", "bad mode", "no file", "no boundary", "broken", "two files"],
)
def test_a_form_that_is_no_upload_is_refused(
    make_folder: MakeFolder, http: httpx.Client, options: dict[str, object], status: int
) -> None:
    folder = make_folder()
    answer = http.post(f"/v1/folders/{folder.id}/upload", **options)  # type: ignore[arg-type] # any option
    assert answer.status_code == status, answer.text
    assert http.get(f"/v1/folders/{folder.id}/files").json() == []
