"""A server that dies in the middle of its runs: what is left is whole, and the next server goes on with it.

One crash hits agents in every situation there is; each test then looks at one of them.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from letta_client import APIConnectionError, InternalServerError
from tests.support.client_objects import as_dicts, eventually, history, message_texts
from tests.support.restartable_server import RestartableServer
from tests.support.server_process import ServerProcess
from tests.support.tool_gate import ToolGate
from tests.support.tool_sources import SHOUT, WAIT_AT_GATE
from tests.support.wire_server import MODELS

from holdfast.testing import Answer, Gate, ProviderRequest, ScriptedProvider, ToolCall

if TYPE_CHECKING:
    from tests.support.server_process import Command, StartServer

pytestmark = pytest.mark.slow

WAIT_SECONDS = 30


@pytest.fixture(scope="module")
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(max_workers=16) as threads:
        yield threads


@dataclass
class Crash:
    """What was under way when the server died, by provider, and the house after it."""

    services: RestartableServer
    home: Path
    log: dict[str, Path] = field(default_factory=dict)
    answering: dict[str, str] = field(default_factory=dict)
    using_tools: dict[str, str] = field(default_factory=dict)
    queued: str = ""
    paused: str = ""
    callers: "list[Future[Any]]" = field(default_factory=list)


@pytest.fixture(scope="module")
def crash(
    running_provider: ScriptedProvider,
    pool: ThreadPoolExecutor,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Crash]:
    home = tmp_path_factory.mktemp("home")
    services = RestartableServer(
        lambda **variables: ServerProcess.start(home, **variables), running_provider
    )
    scene = Crash(services, home)
    gates = [_begin_answering(scene, pool, name) for name in MODELS]
    gates.append(_queue_two(scene, pool))
    _pause(scene)
    doors = [_begin_tools(scene, pool, name) for name in MODELS]
    with doors[0].wait_for_tool(), doors[1].wait_for_tool():
        services.server.kill()
    for gate in gates:
        gate.release()
    for door in doors:
        door.close()
    services.start()
    yield scene
    services.server.stop()


def _has_user_text(text: str) -> Callable[[ProviderRequest], bool]:
    return lambda request: request.user_text == text


def _begin_answering(scene: Crash, pool: ThreadPoolExecutor, name: str) -> Gate:
    """An agent whose model has begun to answer."""
    gate = Gate(f"the first try of {name}")
    question = f"Hello, {name}?"
    scene.services.provider.script(
        Answer("I was about", gate), "Second try.", when=_has_user_text(question)
    )
    scene.answering[name] = scene.services.create_agent(MODELS[name])
    scene.callers.append(pool.submit(scene.services.say, scene.answering[name], question))
    gate.reached.block()
    return gate


def _queue_two(scene: Crash, pool: ThreadPoolExecutor) -> Gate:
    """An agent with one message under way and another that waits for its turn."""
    gate = Gate("the first of two")
    scene.services.provider.script(Answer(gate), "To one.", when=_has_user_text("One"))
    scene.services.provider.script("To two.", when=_has_user_text("Two"))
    agent_id = scene.queued = scene.services.create_agent(MODELS["openai"])
    scene.callers.append(pool.submit(scene.services.say, agent_id, "One"))
    gate.reached.block()
    scene.callers.append(pool.submit(scene.services.say, agent_id, "Two"))
    runs = scene.services.client.runs
    eventually(lambda: runs.list(agent_id=agent_id).items, lambda found: len(found) == 2)
    return gate


def _pause(scene: Crash) -> None:
    """An agent that waits for a person."""
    scene.paused = scene.services.create_agent(MODELS["openai"], SHOUT)
    scene.services.client.agents.tools.update_approval(
        "shout", agent_id=scene.paused, body_requires_approval=True
    )
    scene.services.provider.script(
        Answer(ToolCall("shout", {"text": "hi"}, id="call_held")),
        "Done.",
        when=_has_user_text("Shout"),
    )
    scene.services.say(scene.paused, "Shout")


def _begin_tools(scene: Crash, pool: ThreadPoolExecutor, name: str) -> ToolGate:
    """An agent with two calls: one has returned, one is running."""
    door = ToolGate()
    log = scene.log[name] = scene.services.server.tool_files / f"entries of {name}"
    question = f"Wait, {name}"
    scene.services.provider.script(
        Answer(
            ToolCall("shout", {"text": "hey"}, id="call_1"),
            ToolCall("wait_at_gate", {"port": door.port, "log": str(log)}, id="call_2"),
        ),
        "I do not know whether they heard.",
        when=_has_user_text(question),
    )
    agent_id = scene.services.create_agent(
        MODELS[name], SHOUT, WAIT_AT_GATE, parallel_tool_calls=True
    )
    scene.using_tools[name] = agent_id
    scene.callers.append(pool.submit(scene.services.say, agent_id, question))
    return door


def test_callers_are_cut_off(crash: Crash) -> None:
    assert {type(caller.exception(WAIT_SECONDS)) for caller in crash.callers} == {
        APIConnectionError
    }


@pytest.mark.parametrize("name", MODELS)
def test_a_question_that_was_being_answered_is_asked_again(crash: Crash, name: str) -> None:
    agent_id = crash.answering[name]

    run = crash.services.wait_for_ended_run(agent_id)

    assert (run["status"], run["stop_reason"]) == ("completed", "end_turn")
    assert message_texts(crash.services.client, agent_id) == [f"Hello, {name}?", "Second try."]
    steps = crash.services.client.runs.steps.list(run["id"], order="asc").items
    assert [step.status for step in steps] == ["failed", "success"]
    assert crash.services.is_working(agent_id)


@pytest.mark.parametrize("name", MODELS)
def test_a_tool_that_was_running_is_not_run_again_and_the_model_is_informed(
    crash: Crash, name: str
) -> None:
    agent_id = crash.using_tools[name]

    run = crash.services.wait_for_ended_run(agent_id)

    assert (run["status"], run["stop_reason"]) == ("completed", "end_turn")
    assert crash.log[name].read_text(encoding="utf-8") == "entered\n"
    _, calls, results, answer = history(crash.services.client, agent_id)
    finished, interrupted = results["tool_returns"]
    assert len(calls["tool_calls"]) == 2
    assert (finished["status"], finished["tool_return"]) == ("success", "HEY!")
    assert (interrupted["tool_call_id"], interrupted["status"]) == ("call_2", "error")
    assert "its outcome is unknown" in interrupted["tool_return"]
    assert answer["content"] == "I do not know whether they heard."
    told = [str(request.messages) for request in crash.services.provider.requests]
    assert any("its outcome is unknown" in text for text in told)
    assert crash.services.is_working(agent_id)


def test_a_message_that_waited_for_its_turn_is_still_answered(crash: Crash) -> None:
    crash.services.wait_for_ended_run(crash.queued)

    assert message_texts(crash.services.client, crash.queued) == [
        "One",
        "To one.",
        "Two",
        "To two.",
    ]


def test_a_pause_for_a_person_outlives_the_server(crash: Crash) -> None:
    decision: Any = {"type": "approval", "approve": True, "tool_call_id": "call_held"}

    reply = crash.services.client.agents.messages.create(
        crash.paused, messages=[{"type": "approval", "approvals": [decision]}]
    )

    assert [row.get("tool_return") for row in as_dicts(reply.messages)] == ["HI!", None]


def test_every_row_in_context_is_stored_and_every_stored_row_in_context(crash: Crash) -> None:
    client = crash.services.client
    for agent_id in (*crash.answering.values(), *crash.using_tools.values(), crash.queued):
        rows = dict.fromkeys(row.id for row in client.agents.messages.list(agent_id).items)
        assert client.agents.retrieve(agent_id).message_ids == list(rows)


@pytest.fixture
def fresh_server(start_server: "StartServer", provider: ScriptedProvider) -> RestartableServer:
    return RestartableServer(start_server, provider)


def test_a_run_that_dies_with_its_server_again_and_again_is_given_up(
    fresh_server: RestartableServer, provider: ScriptedProvider, pool: ThreadPoolExecutor
) -> None:
    agent_id = fresh_server.create_agent(MODELS["openai"])
    gates = [Gate("the first try"), Gate("the second try")]
    provider.script(*(Answer(gate) for gate in gates))
    pool.submit(fresh_server.say, agent_id, "Hello?")
    gates[0].reached.block()
    fresh_server.server.kill()
    fresh_server.start(HOLDFAST_MAX_RECOVERIES="1")
    gates[1].reached.block()
    fresh_server.server.kill()
    for gate in gates:
        gate.release()

    fresh_server.start(HOLDFAST_MAX_RECOVERIES="1")

    run = fresh_server.wait_for_ended_run(agent_id)
    assert (run["status"], run["stop_reason"]) == ("failed", "error")
    assert "HOLDFAST_MAX_RECOVERIES" in run["metadata"]["error"]["detail"]
    assert [row["content"] for row in run["input"]] == ["Hello?"]
    assert history(fresh_server.client, agent_id) == []
    assert fresh_server.is_working(agent_id)


def test_a_server_that_is_stopped_in_order_leaves_its_run_to_the_next(
    fresh_server: RestartableServer, provider: ScriptedProvider, pool: ThreadPoolExecutor
) -> None:
    agent_id = fresh_server.create_agent(MODELS["openai"])
    gate = Gate("the first try")
    provider.script(Answer("I was about", gate), "Second try.")
    caller = pool.submit(fresh_server.say, agent_id, "Hello?")
    gate.reached.block()

    assert fresh_server.server.stop() == 0
    gate.release()
    told = caller.exception(WAIT_SECONDS)
    assert isinstance(told, InternalServerError)
    assert "is kept and goes on when the server is back" in str(told)
    # The SDK would send it once more, and the agent would hear it twice.
    assert told.response.headers["x-should-retry"] == "false"
    fresh_server.start()

    fresh_server.wait_for_ended_run(agent_id)
    assert message_texts(fresh_server.client, agent_id) == ["Hello?", "Second try."]


def test_a_second_server_on_the_same_home_is_refused_and_the_first_goes_on(
    fresh_server: RestartableServer, holdfast: "Command", tmp_path: Path
) -> None:
    refused = holdfast("server", "--port", "0")

    assert refused.returncode == 1
    (sentence,) = refused.stderr.splitlines()
    assert sentence.startswith("holdfast: ")
    assert str(tmp_path / ".holdfast") in sentence
    assert fresh_server.client.health().status == "ok"
