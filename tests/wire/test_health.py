"""Health, and how paths are spelled (wire-v1 §1.6, §2.1)."""

import httpx
import pytest
from letta_client import Letta

from holdfast import __version__

pytestmark = pytest.mark.slow


@pytest.mark.wire(1)
@pytest.mark.parametrize("path", ["/v1/health", "/v1/health/", "/v1/ready", "/v1/ready/"])
def test_a_server_that_is_up_says_so_in_both_spellings(http: httpx.Client, path: str) -> None:
    answer = http.get(path)

    assert answer.status_code == 200
    assert answer.json() == {"version": __version__, "status": "ok", "notifications": "ok"}


def test_the_client_asks_for_health(client: Letta) -> None:
    assert client.health().status == "ok"
    assert client.health().version == __version__


@pytest.mark.parametrize(
    "path",
    [
        "agents",
        "tools",
        "blocks",
        "runs",
        "steps",
        "models",
        "tags",
        "messages",
        "models/embedding",
    ],
)
def test_lists_answer_with_and_without_the_slash_and_without_a_redirect(
    http: httpx.Client, path: str
) -> None:
    for spelling in (f"/v1/{path}", f"/v1/{path}/"):
        answer = http.get(spelling, follow_redirects=False)
        assert answer.status_code == 200, spelling
        assert isinstance(answer.json(), list)


def test_other_paths_answer_in_both_spellings_too(http: httpx.Client) -> None:
    created = http.post("/v1/agents", json={"model": "openai/gpt-4o-mini"})
    assert created.status_code == 200
    path = f"/v1/agents/{created.json()['id']}"

    assert http.get(f"{path}/").json()["id"] == created.json()["id"]
    assert http.get(f"{path}/messages/").status_code == 200
    assert http.delete(path).status_code == 200


def test_the_api_describes_itself(http: httpx.Client) -> None:
    description = http.get("/openapi.json").json()

    assert description["info"]["version"] == __version__
    assert "/v1/agents/{agent_id}/messages" in description["paths"]
    assert http.get("/docs").status_code == 200
