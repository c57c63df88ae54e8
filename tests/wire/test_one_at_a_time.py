"""Runs of one thread come one after the other; those of different threads at once (wire-v1 §7.11)."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from letta_client import ConflictError, Letta
from tests.support.client_objects import as_dicts, eventually, message_texts
from tests.support.server_process import ServerProcess
from tests.support.wire_server import MODELS, connect, provider_variables

from holdfast.testing import Answer, Gate, HangUp, ScriptedProvider

if TYPE_CHECKING:
    from tests.support.wire_server import MakeAgent

pytestmark = pytest.mark.slow

WAIT_SECONDS = 30


def texts(reply: "Future[Any]") -> list[str]:
    return [row["content"] for row in as_dicts(reply.result(WAIT_SECONDS).messages)]


def test_a_second_send_waits_for_its_turn_and_nothing_interleaves(
    client: Letta,
    provider: ScriptedProvider,
    make_agent: "MakeAgent",
    pool: ThreadPoolExecutor,
    model: str,
) -> None:
    agent = make_agent()
    gate = Gate("the first answer")
    provider.script(Answer("To ", gate, "one."), "To two.", "To three.")
    replies = []
    for number, text in enumerate(("One", "Two", "Three"), start=1):
        replies.append(pool.submit(client.agents.messages.create, agent.id, input=text))
        # The next is sent when this one is in the queue.
        eventually(
            lambda: client.runs.list(agent_id=agent.id).items,
            lambda runs, number=number: len(runs) == number,  # type: ignore[misc]  # bound per turn of the loop
        )
    gate.reached.block()

    waiting, also_waiting, running = client.runs.list(agent_id=agent.id).items
    assert [run.status for run in (running, waiting, also_waiting)] == [
        "running",
        "created",
        "created",
    ]
    assert len(provider.requests) == 1
    gate.release()

    assert [texts(reply) for reply in replies] == [["To one."], ["To two."], ["To three."]]
    assert message_texts(client, agent.id) == [
        "One",
        "To one.",
        "Two",
        "To two.",
        "Three",
        "To three.",
    ]
    assert [request.user_text for request in provider.requests] == ["One", "Two", "Three"]
    assert all(request.refused is None for request in provider.requests)


def test_other_agents_do_not_wait(
    client: Letta,
    provider: ScriptedProvider,
    make_agent: "MakeAgent",
    pool: ThreadPoolExecutor,
    model: str,
) -> None:
    slow, quick = make_agent(), make_agent()
    gate = Gate("the slow answer")
    provider.script(Answer(gate, "At last."), when=lambda request: request.user_text == "Slowly")
    provider.script("At once.", when=lambda request: request.user_text == "Quickly")

    reply = pool.submit(client.agents.messages.create, slow.id, input="Slowly")
    gate.reached.block()
    answer = client.agents.messages.create(quick.id, input="Quickly")

    assert as_dicts(answer.messages)[0]["content"] == "At once."
    assert not reply.done()
    gate.release()
    assert texts(reply) == ["At last."]


def test_a_failed_run_lets_the_next_one_in(
    client: Letta, provider: ScriptedProvider, make_agent: "MakeAgent", pool: ThreadPoolExecutor
) -> None:
    agent = make_agent()
    gate = Gate("the end of the first")
    provider.script(Answer("I ", gate, HangUp()), "I am fine.")
    first = pool.submit(client.agents.messages.create, agent.id, input="One")
    gate.reached.block()
    second = pool.submit(client.agents.messages.create, agent.id, input="Two")
    eventually(lambda: client.runs.list(agent_id=agent.id).items, lambda runs: len(runs) == 2)
    gate.release()

    assert first.exception(WAIT_SECONDS) is not None
    assert texts(second) == ["I am fine."]
    assert message_texts(client, agent.id) == ["Two", "I am fine."]


def test_many_callers_at_once_each_get_their_own_answer(
    client: Letta,
    provider: ScriptedProvider,
    make_agent: "MakeAgent",
    pool: ThreadPoolExecutor,
    model: str,
) -> None:
    agents = [make_agent() for _ in range(8)]
    provider.respond_with(lambda request: f"You said {request.user_text}.")

    replies = {
        f"{agent.id} {number}": pool.submit(
            client.agents.messages.create, agent.id, input=f"{agent.id} {number}"
        )
        for number in range(4)
        for agent in agents
    }

    for said, reply in replies.items():
        assert texts(reply) == [f"You said {said}."]
    for agent in agents:
        rows = message_texts(client, agent.id)
        assert len(rows) == 8
        assert rows[1::2] == [f"You said {said}." for said in rows[::2]]
    assert all(request.refused is None for request in provider.requests)


@pytest.fixture(scope="module")
def impatient_server(
    running_provider: ScriptedProvider, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    """A server with a short busy wait."""
    started = ServerProcess.start(
        tmp_path_factory.mktemp("impatient"),
        HOLDFAST_BUSY_WAIT_SECONDS="1",
        **provider_variables(running_provider),
    )
    yield started
    started.stop()


def test_a_send_that_does_not_get_its_turn_is_refused_and_leaves_no_run(
    impatient_server: ServerProcess, provider: ScriptedProvider, pool: ThreadPoolExecutor
) -> None:
    client = connect(impatient_server.address)
    agent = client.agents.create(model=MODELS["openai"], include_base_tools=False)
    gate = Gate("the first answer")
    provider.script(Answer(gate, "Done."), "Again.")
    reply = pool.submit(client.agents.messages.create, agent.id, input="One")
    gate.reached.block()
    (running,) = client.runs.list(agent_id=agent.id).items

    with pytest.raises(ConflictError) as caught:
        client.agents.messages.create(agent.id, input="Two")

    assert caught.value.response.json() == {
        "detail": f"Cannot send a new message: Another request (run_id={running.id}) is currently "
        "being processed for this conversation. Please wait for it to complete.",
        "run_id": running.id,
    }
    assert [run.id for run in client.runs.list(agent_id=agent.id).items] == [running.id]
    gate.release()
    assert texts(reply) == ["Done."]
    # The refused message is not in the history; the thread is free.
    client.agents.messages.create(agent.id, input="Three")
    assert message_texts(client, agent.id) == ["One", "Done.", "Three", "Again."]
