"""A server that is killed while approvals are under way: what was decided is carried out, and nothing twice.

One crash hits an approved tool in mid-execution, answers that were just given, and a call that expires meanwhile.
The exact moments between two writes are in ``tests/engine``.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.client_objects import eventually, history
from tests.support.restartable_server import RestartableServer
from tests.support.server_process import ServerProcess
from tests.support.tool_gate import ToolGate
from tests.support.tool_sources import SHOUT, WAIT_AT_GATE
from tests.support.wire_server import MODELS

from holdfast.testing import Answer, ProviderRequest, ScriptedProvider, ToolCall

pytestmark = pytest.mark.slow

HASTY = ("first", "second", "third")
NOTE = '''
def note(log: str) -> str:
    """Leave a line in a file.

    Args:
        log: The file.
    """
    with open(log, "a") as file:
        file.write("noted\\n")
    return "noted"
'''


class Scene:
    def __init__(self, home: Path, provider: ScriptedProvider) -> None:
        self.home = home
        self.services = RestartableServer(
            lambda **given: ServerProcess.start(home, **given), provider
        )
        self.agents: dict[str, str] = {}

    def pause(self, name: str, source: str, call: ToolCall, **request: Any) -> str:
        """An agent that waits for a person; the id of its request."""

        def is_for_this_agent(request: ProviderRequest) -> bool:
            return request.user_text == f"Go on, {name}"

        client = self.services.client
        # The last is asked for again if the server was killed while it came.
        last = f"So much for {name}."
        self.services.provider.script(Answer(call), last, last, when=is_for_this_agent)
        self.agents[name] = self.services.create_agent(MODELS["anthropic"], source)
        client.agents.tools.update_approval(
            call.name, agent_id=self.agents[name], body_requires_approval=True
        )
        reply = client.agents.messages.create(
            self.agents[name], input=f"Go on, {name}", extra_body=request
        )
        return str(reply.messages[-1].id)

    def approve(self, request_id: str) -> None:
        """Returns as soon as the answer is accepted."""
        url = f"{self.services.server.address}/v1/approvals/{request_id}"
        httpx.post(url, json={"approve": True, "decided_by": "Ada"}).raise_for_status()

    def log(self, name: str) -> Path:
        return self.services.server.tool_files / f"log of {name}"

    def wait_for_results(self, name: str) -> dict[str, Any]:
        """The results of the agent's calls, once it has said its last word on them."""
        rows = eventually(
            lambda: history(self.services.client, self.agents[name]),
            lambda seen: seen[-1].get("content") == f"So much for {name}.",
        )
        (results,) = [row for row in rows if row["message_type"] == "tool_return_message"]
        assert [row["message_type"] for row in rows].count("approval_response_message") == 1
        return results


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with (
        ScriptedProvider.in_thread(default="Hello.", check_script=False) as provider,
        ToolGate() as door,
        ThreadPoolExecutor(3) as pool,
    ):
        scene = Scene(tmp_path_factory.mktemp("home"), provider)
        scene.pause("late", SHOUT, ToolCall("shout", {"text": "hi"}), approval_timeout_seconds=2)
        arguments = {"port": door.port, "log": str(scene.log("running"))}
        running = scene.pause("running", WAIT_AT_GATE, ToolCall("wait_at_gate", arguments))
        hasty = [
            scene.pause(name, NOTE, ToolCall("note", {"log": str(scene.log(name))}))
            for name in HASTY
        ]
        scene.approve(running)
        with door.wait_for_tool():
            list(pool.map(scene.approve, hasty))
            scene.services.server.kill()
        scene.services.start()
        yield scene
        scene.services.server.stop()


def test_a_tool_that_was_approved_and_running_is_not_run_again(scene: Scene) -> None:
    results = scene.wait_for_results("running")
    assert results["status"] == "error"
    assert "its outcome is unknown" in results["tool_return"]
    assert scene.log("running").read_text(encoding="utf-8") == "entered\n"
    assert scene.services.is_working(scene.agents["running"])


@pytest.mark.parametrize("name", HASTY)
def test_an_answer_that_was_accepted_is_carried_out_at_most_once(scene: Scene, name: str) -> None:
    results = scene.wait_for_results(name)
    written = scene.log(name).read_text(encoding="utf-8") if scene.log(name).exists() else ""
    if results["status"] == "success":
        assert written == "noted\n"
    else:
        assert "its outcome is unknown" in results["tool_return"]
        assert written in ("", "noted\n")
    assert scene.services.is_working(scene.agents[name])


def test_a_deadline_that_passes_while_no_server_runs_is_kept_at_the_next_start(
    scene: Scene,
) -> None:
    results = scene.wait_for_results("late")
    assert "User reason: Nobody answered until" in results["tool_return"]
    assert scene.services.is_working(scene.agents["late"])
