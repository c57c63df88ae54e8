"""How much an upload may bring, and how it is received."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest
from fastapi import FastAPI
from httpx import AsyncClient
from starlette.datastructures import UploadFile
from tests.doubles.documents import ScriptedDocuments
from tests.support.uploads import make_folder

from holdfast.core.files import Folder
from holdfast.http.app import HttpSettings, build_app
from holdfast.http.uploads import MAX_UPLOADS
from holdfast.ports.services import Limits, Services

Connect = Callable[[FastAPI], AsyncClient]

MB = 1024 * 1024
START = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\n'
END = b"\r\n--x--\r\n"
FORM = {"content-type": "multipart/form-data; boundary=x"}


@pytest.fixture
def accepting(services: Services) -> Services:
    return replace(services, documents=ScriptedDocuments(), limits=Limits(max_file_mb=1))


@pytest.fixture
async def folder(accepting: Services) -> Folder:
    return await make_folder(accepting)


@pytest.fixture
def app(accepting: Services) -> FastAPI:
    return build_app(accepting, HttpSettings(max_body_bytes=1_000, max_file_mb=1))


@pytest.fixture
async def client(app: FastAPI, connect: Connect) -> AsyncIterator[AsyncClient]:
    async with connect(app) as opened:
        yield opened


async def upload(client: AsyncClient, folder: Folder, data: bytes, **options: Any) -> Any:
    sent = {"file": ("a.txt", data)}
    return await client.post(f"/v1/folders/{folder.id}/upload", files=sent, **options)


async def test_a_file_may_be_larger_than_other_bodies(client: AsyncClient, folder: Folder) -> None:
    answer = await upload(client, folder, b"x" * MB)
    assert answer.status_code == 200
    assert answer.json()["file_size"] == MB


@pytest.mark.parametrize("size", [MB + 1, 2 * MB])
async def test_a_file_over_the_limit_is_refused(
    client: AsyncClient, folder: Folder, size: int
) -> None:
    """Also one that is only a byte too large, which the length of the form does not show."""
    answer = await upload(client, folder, b"x" * size)
    assert answer.status_code == 413
    assert "larger than 1 MiB" in answer.json()["detail"]
    assert "HOLDFAST_MAX_FILE_MB" in answer.json()["detail"]
    assert (await client.get(f"/v1/folders/{folder.id}/files")).json() == []


@pytest.mark.parametrize("path", ["/v1/folders/{}/upload", "/v1/sources/{}/upload/"])
async def test_a_file_of_unknown_length_is_counted_while_it_comes(
    client: AsyncClient, folder: Folder, path: str
) -> None:
    pulled = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal pulled
        yield START
        while True:
            pulled += 1
            yield b"x" * 10_000

    answer = await client.post(path.format(folder.id), content=endless(), headers=FORM)
    assert answer.status_code == 413
    assert "HOLDFAST_MAX_FILE_MB" in answer.json()["detail"]
    assert pulled <= 1.1 * MB / 10_000 + 1


async def test_other_bodies_keep_their_limit(client: AsyncClient, folder: Folder) -> None:
    answer = await client.patch(f"/v1/folders/{folder.id}", content=b"x" * 1_001)
    assert answer.status_code == 413
    assert "HOLDFAST_MAX_BODY_BYTES" in answer.json()["detail"]


async def test_a_file_is_never_in_memory_as_a_whole(
    client: AsyncClient, folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    rolled = []
    write = UploadFile.write

    async def watch(self: UploadFile, data: bytes) -> None:
        await write(self, data)
        rolled.append(not self._in_memory)

    monkeypatch.setattr(UploadFile, "write", watch)
    # What stays in memory is at most a megabyte, and a piece of it.
    monkeypatch.setattr("starlette.formparsers.MultiPartParser.spool_max_size", 100_000)

    async def pieces() -> AsyncIterator[bytes]:
        yield START
        for _ in range(10):
            yield b"x" * 50_000
        yield END

    answer = await client.post(f"/v1/folders/{folder.id}/upload", content=pieces(), headers=FORM)
    assert answer.json()["file_size"] == 500_000
    assert rolled[-1]


async def test_a_full_temporary_folder_is_told(
    client: AsyncClient, folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(_: UploadFile, __: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(UploadFile, "write", fail)
    answer = await upload(client, folder, b"x")
    assert answer.status_code == 503
    assert "temporary folder" in answer.json()["detail"]


async def test_so_many_uploads_are_received_at_once_and_the_others_wait(
    app: FastAPI, client: AsyncClient, folder: Folder
) -> None:
    begun = 0
    gate, all_begun = asyncio.Event(), asyncio.Event()

    async def held() -> AsyncIterator[bytes]:
        nonlocal begun
        begun += 1
        if begun == MAX_UPLOADS:
            all_begun.set()
        yield START
        await gate.wait()
        yield END

    async def send() -> int:
        path = f"/v1/folders/{folder.id}/upload"
        return (await client.post(path, content=held(), headers=FORM)).status_code

    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        sent = [group.create_task(send()) for _ in range(MAX_UPLOADS + 2)]
        await all_begun.wait()
        # Everything else is answered meanwhile.
        assert (await client.get(f"/v1/folders/{folder.id}")).status_code == 200
        assert begun == MAX_UPLOADS
        assert app.state.upload_slots.locked()
        gate.set()
    assert {task.result() for task in sent} == {200}


async def test_texts_that_are_too_long_for_one_list_are_not_listed(
    client: AsyncClient, folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.usecases.files.MAX_LISTED_CHARS", -1)
    for _ in range(2):
        await upload(client, folder, b"text")
    path, shown = f"/v1/folders/{folder.id}/files", {"include_content": True}
    answer = await client.get(path, params=shown)
    assert answer.status_code == 400
    assert "Ask for fewer files" in answer.json()["detail"]
    assert (await client.get(path)).status_code == 200
    assert (await client.get(path, params=shown | {"limit": 1})).status_code == 200
