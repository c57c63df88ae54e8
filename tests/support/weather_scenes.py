"""What servers are doing when the weather turns bad, and clients that ask until they are answered."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
from tests.support.cluster import Cluster, ClusterServer
from tests.support.tool_gate import ToolGate
from tests.support.tool_sources import WAIT_AT_GATE
from tests.support.waiting import try_until_done
from tests.support.wire_server import MODELS

from holdfast.testing import Answer, Gate, ToolCall

# How long a client goes on asking: longer than any weather here lasts.
PATIENCE_SECONDS = 45.0
# A paused or partitioned server takes a connection and does not answer.
_ANSWER_SECONDS = 20.0
_OK = 200

LEAVE_LINE = '''
def leave_line(log: str, line: str) -> str:
    """Leave a line in a file.

    Args:
        log: The file.
        line: The line.
    """
    import os

    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    os.write(descriptor, (line + "\\n").encode())
    os.close(descriptor)
    return "left " + line
'''


@dataclass
class Answering:
    """A run whose model has begun to answer, and waits at a gate. If it is asked again, it answers at once."""

    agent_id: str
    run_id: str
    gate: Gate


@dataclass
class UsingTools:
    """A run with two calls: the first waits at a gate, the second has not begun. Each start leaves a line."""

    agent_id: str
    run_id: str
    door: ToolGate
    log: Path


def create_agent(server: ClusterServer, *sources: str, **fields: Any) -> str:
    tools = [server.client.tools.upsert(source_code=source).id for source in sources]
    agent = server.client.agents.create(
        model=MODELS["openai"], include_base_tools=False, tool_ids=tools, **fields
    )
    return agent.id


def begin_answer(cluster: Cluster, server: ClusterServer, second: str = "Second try.") -> Answering:
    text = f"Hello {uuid4()}"
    gate = Gate(f"the answer to {text}")
    cluster.provider.script(
        Answer("I was about", gate), second, when=lambda request: request.user_text == text
    )
    agent_id = create_agent(server)
    run_id = server.send_async(agent_id, text)
    gate.reached.block()
    return Answering(agent_id, run_id, gate)


def begin_tools(
    cluster: Cluster, server: ClusterServer, door: ToolGate | None = None
) -> UsingTools:
    text, door = f"Use tools {uuid4()}", door or ToolGate()
    log = cluster.tool_files / f"starts-{uuid4()}"
    cluster.provider.script(
        Answer(
            ToolCall("wait_at_gate", {"port": door.port, "log": str(log)}),
            ToolCall("leave_line", {"log": str(log), "line": "second"}),
        ),
        "I do not know what happened.",
        when=lambda request: request.user_text == text,
    )
    agent_id = create_agent(server, WAIT_AT_GATE, LEAVE_LINE, parallel_tool_calls=True)
    return UsingTools(agent_id, server.send_async(agent_id, text), door, log)


def send_patiently(addresses: Sequence[str], agent_id: str, text: str) -> dict[str, Any]:
    """Send a message with a key to one server after the other until one has answered it."""
    body, headers = {"input": text}, {"Idempotency-Key": uuid4().hex}
    attempts = iter(range(10_000))

    def attempt() -> dict[str, Any] | None:
        address = addresses[next(attempts) % len(addresses)]
        try:
            answer = httpx.post(
                f"{address}/v1/agents/{agent_id}/messages",
                json=body,
                headers=headers,
                timeout=_ANSWER_SECONDS,
            )
        except httpx.TransportError:
            return None
        if answer.status_code == _OK:
            answered: dict[str, Any] = answer.json()
            return answered
        assert answer.status_code >= 500, answer.text
        return None

    return try_until_done(attempt, seconds=PATIENCE_SECONDS)
