"""What an agent's model is shown: the system message, the window, the pending approval (wire-v1 §2.3, §3.13, §7.1)."""

from datetime import UTC, datetime
from typing import Any

from httpx import AsyncClient
from msgspec.structs import replace

from holdfast.core.ids import Kind
from holdfast.core.lifecycle import Signal
from holdfast.core.messages import CallState, Message, OpenCall, Role, Text, ToolCall
from holdfast.core.runs import Run, RunStatus, StopReason
from holdfast.ports.services import Services
from holdfast.ports.store import Transaction

UNKNOWN = "123e4567-e89b-42d3-8456-426614174000"
NOW = datetime(2026, 1, 29, 20, 44, 4, tzinfo=UTC)
CALL = ToolCall("call_1", "delete_file", '{"path": "x"}')


async def make(client: AsyncClient, **body: object) -> dict[str, Any]:
    answer = await client.post("/v1/agents/", json=body)
    assert answer.status_code == 200, answer.text
    state: dict[str, Any] = answer.json()
    return state


async def texts(client: AsyncClient, agent: dict[str, Any]) -> list[str]:
    history = (await client.get(f"/v1/agents/{agent['id']}/messages")).json()
    return [message.get("content", "") for message in history]


async def live_run(services: Services, agent: dict[str, Any]) -> Run:
    run = Run(
        id=services.ids.new_id(Kind.RUN),
        organization_id="org-00000000-0000-4000-8000-000000000000",
        agent_id=agent["id"],
        thread_id=agent["id"],
        status=RunStatus.QUEUED,
        kind="send_message",
        created_at=NOW,
    )
    await services.store.write(lambda tx: tx.runs.add(run))
    return run


async def pause(services: Services, agent: dict[str, Any]) -> Run:
    """The agent asks for approval, as the engine would leave it."""
    run = await live_run(services, agent)
    row = Message(
        id=services.ids.new_id(Kind.MESSAGE),
        agent_id=agent["id"],
        thread_id=agent["id"],
        role=Role.APPROVAL,
        created_at=NOW,
        content=(Text("May I?"),),
        tool_calls=(CALL,),
        run_id=run.id,
    )

    def work(tx: Transaction) -> Run:
        claimed = tx.runs.transition(run, Signal.CLAIM)
        tx.messages.append([row])
        held = OpenCall(CALL, row.id, services.ids.new_id(Kind.STEP), CallState.HELD)
        tx.calls.put(agent["id"], [held])
        ended = replace(claimed, stop_reason=StopReason.REQUIRES_APPROVAL)
        return tx.runs.transition(ended, Signal.PAUSE)

    return await services.store.write(work)


async def test_recompiling_shows_the_new_prompt_and_keeps_the_message(client: AsyncClient) -> None:
    agent = await make(client, memory_blocks=[{"label": "human", "value": "Ann"}])
    path = f"/v1/agents/{agent['id']}"
    await client.patch(path, json={"system": "Before {CORE_MEMORY} after"})
    dry = await client.post(f"{path}/recompile", params={"dry_run": "true"})
    assert dry.json().startswith("Before <memory_blocks>")
    assert dry.json() not in await texts(client, agent)
    wet = await client.post(f"{path}/recompile")
    assert wet.json() == dry.json()
    assert await texts(client, agent) == [wet.json()]
    assert (await client.get(path)).json()["message_ids"] == agent["message_ids"]
    alias = await client.post(f"{path}/system-prompt/recompile")
    assert alias.json() == wet.json()


async def test_recompiling_keeps_the_time_unless_asked_otherwise(client: AsyncClient) -> None:
    agent = await make(client)
    path = f"/v1/agents/{agent['id']}"
    await client.patch(path, json={"timezone": "Asia/Tokyo"})
    (before,) = await texts(client, agent)
    assert "UTC+0000" in before
    kept = await client.post(f"{path}/recompile")
    assert kept.json() == before
    moved = await client.post(f"{path}/recompile", params={"update_timestamp": "true"})
    assert "JST+0900" in moved.json()


async def test_rules_are_in_the_prompt_when_it_is_rebuilt(client: AsyncClient) -> None:
    agent = await make(client)
    path = f"/v1/agents/{agent['id']}"
    await client.patch(path, json={"tool_rules": [{"type": "exit_loop", "tool_name": "bye"}]})
    text = (await client.post(f"{path}/recompile")).json()
    assert "<tool_usage_rules>" in text
    context = (await client.get(f"{path}/context")).json()
    assert "bye" in context["tool_usage_rules"]
    assert context["num_tokens_tool_usage_rules"] > 0


async def test_resetting_empties_the_context_and_keeps_the_history(client: AsyncClient) -> None:
    agent = await make(client, initial_message_sequence=[{"role": "user", "content": "hello"}])
    path = f"/v1/agents/{agent['id']}"
    await client.patch(path, json={"system": "New prompt"})
    answer = await client.patch(f"{path}/reset-messages", json={})
    assert (answer.status_code, answer.content) == (200, b"null")
    assert (await client.get(path)).json()["message_ids"] == agent["message_ids"][:1]
    system, said = await texts(client, agent)
    assert system.startswith("New prompt")
    assert "- 1 previous messages" in system
    assert said == "hello"


async def test_resetting_needs_a_body(client: AsyncClient) -> None:
    agent = await make(client)
    assert (await client.patch(f"/v1/agents/{agent['id']}/reset-messages")).status_code == 422


async def test_the_context_is_not_taken_from_a_run_that_goes_on(
    client: AsyncClient, services: Services
) -> None:
    agent = await make(client, initial_message_sequence=[{"role": "user", "content": "hello"}])
    run = await live_run(services, agent)
    path = f"/v1/agents/{agent['id']}"
    reset = await client.patch(f"{path}/reset-messages", json={})
    chosen = await client.patch(path, json={"message_ids": agent["message_ids"][:1]})
    for answer in (reset, chosen):
        assert answer.status_code == 409
        assert run.id in answer.json()["detail"]
    assert (await client.get(path)).json()["message_ids"] == agent["message_ids"]


async def test_a_pending_approval_is_shown_when_it_is_asked_for(
    client: AsyncClient, services: Services
) -> None:
    agent = await make(client)
    await pause(services, agent)
    path = f"/v1/agents/{agent['id']}"
    assert (await client.get(path)).json()["pending_approval"] is None
    shown = (await client.get(path, params={"include": "agent.pending_approval"})).json()
    pending = shown["pending_approval"]
    assert pending["id"] == shown["message_ids"][-1]
    assert pending["message_type"] == "approval_request_message"
    call = {"name": "delete_file", "arguments": '{"path": "x"}', "tool_call_id": "call_1"}
    assert pending["tool_call"] == call
    assert pending["tool_calls"] == [call]


async def test_resetting_drops_a_pending_approval(client: AsyncClient, services: Services) -> None:
    agent = await make(client)
    run = await pause(services, agent)
    path = f"/v1/agents/{agent['id']}"
    answer = await client.patch(f"{path}/reset-messages", json={})
    assert answer.status_code == 200
    shown = (await client.get(path, params={"include": "agent.pending_approval"})).json()
    assert shown["pending_approval"] is None
    assert shown["message_ids"] == agent["message_ids"]
    found = await services.store.read(lambda tx: tx.runs.find(run.id))
    assert found is not None
    assert found.status is RunStatus.CANCELLED


async def test_the_window_is_shown_part_by_part(client: AsyncClient) -> None:
    agent = await make(
        client,
        memory_blocks=[{"label": "human", "value": "Ann"}],
        system="Be brief.",
        initial_message_sequence=[{"role": "user", "content": "hello"}],
    )
    answer = await client.get(f"/v1/agents/{agent['id']}/context")
    window = answer.json()
    assert window["context_window_size_max"] == 128_000
    assert (window["num_messages"], window["num_recall_memory"]) == (2, 2)
    assert window["system_prompt"] == "Be brief."
    assert window["core_memory"].startswith("The following memory blocks")
    assert window["external_memory_summary"].startswith("<memory_metadata>")
    assert window["summary_memory"] is window["tool_usage_rules"] is None
    names = [item["function"]["name"] for item in window["functions_definitions"]]
    assert names == ["conversation_search", "memory_insert", "memory_replace"]
    (message,) = window["messages"]
    assert message["role"] == "user"
    assert message["content"] == [{"type": "text", "text": "hello"}]
    assert window["num_tokens_messages"] == 2
    parts = [value for key, value in window.items() if key.startswith("num_tokens_")]
    assert window["context_window_size_current"] == sum(parts) > 0


async def test_the_window_is_shown_while_an_approval_is_pending(
    client: AsyncClient, services: Services
) -> None:
    agent = await make(client)
    await pause(services, agent)
    window = (await client.get(f"/v1/agents/{agent['id']}/context")).json()
    assert window["num_messages"] == 2
    assert window["num_tokens_messages"] == 0


async def test_the_window_belongs_to_a_thread_of_the_agent(client: AsyncClient) -> None:
    agent, other = await make(client), await make(client)
    path = f"/v1/agents/{agent['id']}/context"
    for name in ("default", agent["id"]):
        assert (await client.get(path, params={"conversation_id": name})).status_code == 200
    for name in (f"conv-{UNKNOWN}", other["id"]):
        assert (await client.get(path, params={"conversation_id": name})).status_code == 404
