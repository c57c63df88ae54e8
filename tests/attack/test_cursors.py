"""Cursors that are no ids: refused alike by every list."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from tests.support.server_process import ServerProcess

pytestmark = pytest.mark.slow

SOME_UUID = "00000000-0000-4000-8000-000000000000"
IDS = {
    "agent_id": "agent",
    "archive_id": "archive",
    "block_id": "block",
    "conversation_id": "conv",
    "folder_id": "source",
    "identity_id": "identity",
    "run_id": "run",
    "step_id": "step",
    "tool_id": "tool",
}
MALFORMED = (
    "nope",
    "agent-",
    f"nothing-{SOME_UUID}",
    SOME_UUID,
    f"agent-{SOME_UUID}\n",
    f"agent-{SOME_UUID} ",
    f"AGENT-{SOME_UUID}",
    "'; DROP TABLE agents;--",
    "🦊",
    "0",
    "null",
    "x" * 5000,
)


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    server = ServerProcess.start(tmp_path_factory.mktemp("home"))
    with httpx.Client(base_url=server.address, timeout=60, verify=False) as client:
        yield client
    server.stop()


def find_lists(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Every path that takes a cursor, and what the document says about ``after``."""
    return {
        path.format(**{name: f"{kind}-{SOME_UUID}" for name, kind in IDS.items()}): row["schema"]
        for path, operations in document["paths"].items()
        for row in operations.get("get", {}).get("parameters", ())
        if row["name"] == "after"
    }


def test_a_malformed_cursor_is_a_400_in_every_list(http: httpx.Client) -> None:
    lists = find_lists(http.get("/openapi.json").json())
    # A tag is its own cursor, and any short text can be a tag.
    assert lists.pop("/v1/tags/")["maxLength"] == 500
    assert len(lists) >= 15
    for path, schema in lists.items():
        assert schema["pattern"].startswith("^"), path
        for name in ("after", "before"):
            for text in MALFORMED:
                answer = http.get(path, params={name: text})
                assert answer.status_code == 400, f"{path} {name}={text!r:.50}: {answer.text}"
                assert "Invalid cursor" in answer.json()["detail"]
                assert len(answer.content) < 500


def test_a_long_tag_is_no_cursor(http: httpx.Client) -> None:
    assert http.get("/v1/tags/", params={"after": "x" * 501}).status_code == 400
    assert http.get("/v1/tags/", params={"after": "x" * 500}).status_code == 200


def test_a_cursor_that_nobody_has_is_no_malformed_one(http: httpx.Client) -> None:
    """wire-v1 §1.10: lists of agents and blocks begin at their start, others do not know it."""
    assert http.get("/v1/agents/", params={"after": f"agent-{SOME_UUID}"}).json() == []
    assert http.get("/v1/runs/", params={"after": f"run-{SOME_UUID}"}).status_code == 404
    assert http.get("/v1/runs/", params={"after": ""}).json() == []


@pytest.mark.parametrize("value", ["nope", -1, 1.5, True, [], 2**63, "run-1"])
def test_the_cursor_of_a_stream_is_a_number(http: httpx.Client, value: object) -> None:
    for path in (f"/v1/runs/run-{SOME_UUID}/stream", f"/v1/conversations/conv-{SOME_UUID}/stream"):
        answer = http.post(path, json={"starting_after": value})
        assert answer.status_code == 400, answer.text
        assert "starting_after" in answer.json()["detail"]
