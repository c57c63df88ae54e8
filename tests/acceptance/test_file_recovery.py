"""A server that dies while it processes a file: the next one goes on with it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.server_process import ServerProcess
from tests.support.wire_folders import wait_for_file
from tests.support.wire_server import connect

pytestmark = pytest.mark.slow

# Long enough to be killed in the middle: about a hundred transactions.
TEXT = "".join(f"Line {number} is one of many lines of a text.\n\n" for number in range(8_000))
# Short, so that the next server need not wait for long until it may do the work of the dead one.
LEASE = {"HOLDFAST_LEASE_SECONDS": "2"}


@pytest.fixture(params=["sqlite", "postgresql"])
def variables(request: pytest.FixtureRequest) -> dict[str, str]:
    if request.param == "sqlite":
        return {}
    url = request.getfixturevalue("blank_postgres_url")
    return LEASE | {"HOLDFAST_DATABASE_URL": url, "HOLDFAST_SECRET_KEY": "the same key"}


@pytest.mark.memory(69)
def test_a_file_that_a_dead_server_was_processing_is_finished_by_the_next(
    tmp_path: Path, variables: dict[str, str]
) -> None:
    server = ServerProcess.start(tmp_path, **variables)
    with connect(server.address) as client:
        folder = client.folders.create(name="papers", embedding_chunk_size=25)
        file = client.folders.files.upload(folder.id, file=("long.txt", TEXT.encode()))
        before = client.folders.files.retrieve(file.id or "", folder_id=folder.id)
    server.kill()
    assert before.processing_status == "parsing"

    again = ServerProcess.start(tmp_path, **variables)
    try:
        with connect(again.address) as client:
            done = wait_for_file(client, folder.id, file.id or "")
        assert (done.processing_status, done.error_message) == ("completed", None)
        assert done.content == TEXT
        passages = [
            (item["metadata"]["start_line"], item["text"])
            for item in read_passages(again, folder.id)
        ]
        assert len(passages) == len(set(passages)) == done.total_chunks
        assert {number for number, _ in passages} >= {1, 2 * 8_000 - 3}
    finally:
        again.stop()


def read_passages(server: ServerProcess, folder_id: str) -> Iterator[dict[str, Any]]:
    params: dict[str, str | int] = {"limit": 1_000, "order": "asc"}
    while found := httpx.get(
        f"{server.address}/v1/folders/{folder_id}/passages", params=params
    ).json():
        yield from found
        params["after"] = found[-1]["id"]
