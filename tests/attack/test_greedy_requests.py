"""One greedy request stalls nobody: health and the turns of others are answered while it is refused or carried out.

The times are logged (``pytest --log-cli-level=info``). What is asserted is how much work the server does for others while one
client waits, in seconds of CPU: that does not depend on how busy the machine is.
"""

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Self

import httpx
import psutil  # type: ignore[import-untyped]  # it brings no types
import pytest
from tests.support.request_bodies import Field, RequestFields
from tests.support.server_process import ServerProcess

from holdfast.core.blocks import MAX_VALUE_CHARS
from holdfast.core.passages import MAX_CHARS_AT_ONCE

pytestmark = pytest.mark.slow

# In seconds of the server's CPU: on an idle machine, health is answered within one second and a turn within two. Twice that,
# because the same machine is twice as slow at times.
MAX_HEALTH_WORK = 2.0
MAX_TURN_WORK = 4.0
# How long a prober waits between two requests.
PROBE_SECONDS = 0.03
WAIT_SECONDS = 60
MEGABYTES = 32 * 1024 * 1024
JSON = {"content-type": "application/json"}
MESSAGE = {"role": "user", "content": "x"}

log = logging.getLogger(__name__)


@dataclass
class Target:
    """A server with something of each kind."""

    server: ServerProcess
    http: httpx.Client
    ids: dict[str, str]

    def path(self, template: str) -> str:
        return template.format_map(self.ids)

    def send(self, method: str, template: str, raw: bytes) -> httpx.Response:
        return self.http.request(method, self.path(template), content=raw, headers=JSON)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    # Nothing listens at the address of its MCP server.
    allowed = {"HOLDFAST_ALLOWED_PRIVATE_HOSTS": "127.0.0.2"}
    server = ServerProcess.start(tmp_path_factory.mktemp("home"), **allowed)
    try:
        with httpx.Client(base_url=server.address, timeout=WAIT_SECONDS, verify=False) as http:
            yield Target(server, http, create_ids(http))
    finally:
        server.stop()


def create_ids(http: httpx.Client) -> dict[str, str]:
    def create(path: str, body: Any) -> Any:
        answer = http.post(path, json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    agent = create("/v1/agents/", {"name": "target"})["id"]
    create(f"/v1/agents/{agent}/messages", {"input": "Hello."})
    run = http.get("/v1/runs/", params={"agent_id": agent}).json()[0]["id"]
    source = (
        "def shout(text: str) -> str:\n    '''Shout.\n\n    Args:\n        text: what\n    '''\n"
    )
    remote = {"server_name": "remote", "config": {"server_url": "http://127.0.0.2:9/mcp"}}
    person = {"identifier_key": "ada", "name": "Ada", "identity_type": "user"}
    return {
        "mcp_server_id": create("/v1/mcp-servers/", remote)["id"],
        "mcp_server_name": "remote",
        "agent_id": agent,
        "run_id": run,
        "step_id": http.get(f"/v1/runs/{run}/steps").json()[0]["id"],
        "message_id": http.get(f"/v1/agents/{agent}").json()["message_ids"][0],
        "tool_id": create("/v1/tools/", {"source_code": source})["id"],
        "block_id": create("/v1/blocks/", {"label": "notes", "value": ""})["id"],
        "conversation_id": create(f"/v1/conversations/?agent_id={agent}", {})["id"],
        "block_label": "notes",
        "archive_id": create("/v1/archives/", {"name": "notes"})["id"],
        "identity_id": create("/v1/identities/", person)["id"],
        "folder_id": create("/v1/folders/", {"name": "notes"})["id"],
        "tool_name": "shout",
        "prober": create("/v1/agents/", {"name": "prober"})["id"],
    }


class Probers:
    """Two clients that ask all the time: one for health, one for turns of an agent of its own."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._stop = threading.Event()
        self._process = psutil.Process(target.server.pid)
        self.seconds: dict[str, float] = {}
        self.work: dict[str, float] = {}
        self._threads = [
            threading.Thread(target=self._probe, args=("health", self._ask_health)),
            threading.Thread(target=self._probe, args=("turn", self._ask_turn)),
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(WAIT_SECONDS)
        for name, seconds in self.seconds.items():
            log.info("slowest %s: %.3f s, %.3f s of CPU", name, seconds, self.work[name])

    def check(self) -> None:
        assert self.work["health"] < MAX_HEALTH_WORK
        assert self.work["turn"] < MAX_TURN_WORK

    def _server_work(self) -> float:
        times = self._process.cpu_times()
        return float(times.user + times.system)

    def _probe(self, name: str, ask: Callable[[httpx.Client], httpx.Response]) -> None:
        with httpx.Client(
            base_url=self._target.server.address, timeout=WAIT_SECONDS, verify=False
        ) as http:
            while True:
                began_at, work_before = time.monotonic(), self._server_work()
                assert ask(http).status_code == 200
                elapsed = time.monotonic() - began_at
                work = self._server_work() - work_before
                self.seconds[name] = max(elapsed, self.seconds.get(name, 0))
                self.work[name] = max(work, self.work.get(name, 0))
                if self._stop.wait(PROBE_SECONDS):
                    return

    def _ask_health(self, http: httpx.Client) -> httpx.Response:
        return http.get("/v1/health/")

    def _ask_turn(self, http: httpx.Client) -> httpx.Response:
        path = self._target.path("/v1/agents/{prober}/messages")
        return http.post(path, json={"input": "Hello."})


def image_source(media_type: str) -> dict[str, str]:
    return {"type": "base64", "data": "AAAA", "media_type": media_type}


ABSURD: dict[str, tuple[str, Callable[[], Any]]] = {
    "200,000 messages": (
        "/v1/agents/{agent_id}/messages",
        lambda: {"messages": [MESSAGE] * 200_000},
    ),
    "2,000 memory blocks": (
        "/v1/agents/",
        lambda: {"memory_blocks": [{"label": f"b{n}", "value": ""} for n in range(2_000)]},
    ),
    "1,000,000 tags": ("/v1/agents/", lambda: {"tags": [f"t{n}" for n in range(1_000_000)]}),
    "100,000 content parts": (
        "/v1/agents/{agent_id}/messages",
        lambda: {"messages": [{"role": "user", "content": [{"text": "x"}] * 100_000}]},
    ),
    "300,000 metadata keys": (
        "/v1/agents/",
        lambda: {"metadata": {f"k{n}": n for n in range(300_000)}},
    ),
    "32 MB of empty objects": (
        "/v1/agents/",
        lambda: b'{"metadata": {"a": [' + b"{}," * (MEGABYTES // 3 - 20) + b"0]}}",
    ),
    "32 MB of tool source": (
        "/v1/tools/",
        lambda: {"source_code": "f()\n" * (MEGABYTES // 5 - 20)},
    ),
    "a message type of 32 MB": (
        "/v1/agents/{agent_id}/messages",
        lambda: {"messages": [{"type": "x" * (MEGABYTES - 100), "content": "x"}]},
    ),
    "a media type of 32 MB": (
        "/v1/agents/{agent_id}/messages",
        lambda: {"input": [{"type": "image", "source": image_source("x" * (MEGABYTES - 200))}]},
    ),
    "a timezone of 32 MB": ("/v1/agents/", lambda: {"timezone": "x" * (MEGABYTES - 100)}),
}


@pytest.mark.parametrize("name", ABSURD)
def test_an_absurd_request_is_refused_and_stalls_nobody(target: Target, name: str) -> None:
    path, build = ABSURD[name]
    body = build()
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    with Probers(target) as probers:
        answer = target.send("POST", path, raw)
    assert answer.status_code in (400, 422), answer.text[:500]
    assert len(answer.content) < 5_000
    probers.check()


def test_as_much_as_is_allowed_stalls_nobody(target: Target) -> None:
    """Each is the largest of its kind that is accepted, or nearly so."""
    rules = [
        {"type": "constrain_child_tools", "tool_name": "t", "children": [str(m) for m in range(n)]}
        for n in range(1, 400)
    ]
    parts = [{"role": "user", "content": [{"text": "x"}] * 1_000}] * 30
    blocks = [{"label": f"b{n}", "value": "x" * 1_000} for n in range(1_000)]
    tagged = [
        {"label": f"b{n}", "value": "", "tags": [f"{n}-{m}" for m in range(100)]}
        for n in range(100)
    ]
    bodies = [
        ("/v1/agents/", {"tool_rules": rules}),
        ("/v1/agents/", {"memory_blocks": blocks}),
        ("/v1/agents/", {"memory_blocks": tagged}),
        ("/v1/agents/{agent_id}/messages/async", {"messages": parts}),
        ("/v1/blocks/", {"label": "b", "value": "x" * MAX_VALUE_CHARS, "limit": MAX_VALUE_CHARS}),
        ("/v1/agents/", {"description": "x" * (MEGABYTES - 200)}),
        ("/v1/tools/", {"source_code": "a=1\n" * 24_000 + "def f() -> int:\n    'Doc.'\n"}),
    ]
    texts = [
        " ".join(f"w{n * m}" for m in range(12_000)) for n in range(MAX_CHARS_AT_ONCE // 99_000)
    ]
    passages = [{"text": text[:99_000]} for text in texts]
    bodies.append(("/v1/archives/{archive_id}/passages/batch", {"passages": passages}))
    raws = [(path, json.dumps(body).encode()) for path, body in bodies]
    with Probers(target) as probers:
        for path, raw in raws:
            answer = target.send("POST", path, raw)
            assert answer.status_code == 200, (path, answer.text[:300])
    probers.check()


def test_a_block_that_many_agents_share_stalls_nobody(target: Target) -> None:
    """A change of its value rewrites the system message of each of them."""
    body = {"label": "shared", "value": "", "limit": MAX_VALUE_CHARS}
    block = target.http.post("/v1/blocks/", json=body).json()["id"]
    for _ in range(50):
        agent = target.http.post("/v1/agents/", json={"block_ids": [block]})
        assert agent.status_code == 200, agent.text[:300]
    raw = json.dumps({"value": "x" * MAX_VALUE_CHARS}).encode()
    with Probers(target) as probers:
        changed = target.send("PATCH", f"/v1/blocks/{block}", raw)
        assert changed.status_code == 200, changed.text[:300]
    probers.check()


def is_repeated(found: Field) -> bool:
    """Whether another field or path has the same schema."""
    return (
        found.method == "PUT"
        or found.path.endswith(("/stream", "/async", "/blocks/{block_label}"))
        or found.path == "/v1/conversations/{conversation_id}/messages"
        or "compaction_settings" in found.name
        or "response_schema" in found.name
        # The same as run, which says first that the server has no such tool.
        or found.path.endswith("/execute")
    )


def largest_request(found: Field) -> tuple[str, str, bytes]:
    assert found.maximum is not None, found
    body = found.body(found.maximum)
    path = found.path
    if path.endswith("/messages") and not body.keys() & {"input", "messages"}:
        body["input"] = "Hello."
    if path == "/v1/conversations/":
        path += "?agent_id={agent_id}"
    return found.method, path, json.dumps(body).encode()


def test_the_maximum_of_each_field_stalls_nobody(target: Target) -> None:
    document = target.http.get("/openapi.json").json()
    requests = {
        str(found): largest_request(found)
        for found in RequestFields(document).in_bodies()
        if not is_repeated(found)
    }
    slowest = (0.0, "")
    with Probers(target) as probers:
        for name, request in requests.items():
            began_at = time.monotonic()
            answer = target.send(*request)
            slowest = max(slowest, (time.monotonic() - began_at, name))
            assert answer.status_code < 500, (name, answer.text[:300])
            assert answer.status_code != 422, (name, answer.text[:300])
    log.info("%d fields, the slowest: %s in %.3f s", len(requests), slowest[1], slowest[0])
    probers.check()
