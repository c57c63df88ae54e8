"""Tools of MCP servers in runs: what becomes of each call, and that they are held, edited, repeated and cancelled as all are."""

import asyncio
import base64
import logging
from typing import Any

import pytest
from msgspec import structs
from tests.doubles.mcp import McpCall
from tests.doubles.model import call_answer, text_answer
from tests.support.engine_approvals import answer
from tests.support.engine_runs import assert_cancelled, wait_until_set
from tests.support.mcp_rig import SERVER, McpRig, call_with, remote_tool
from tests.support.rig import ACTOR, WAIT_SECONDS
from tests.support.waiting import eventually

from holdfast.adapters.store.sqlite import SqliteStore
from holdfast.core import tool_rules
from holdfast.core.agents import Actor, Agent
from holdfast.core.messages import Decision, Image, Outcome, Role, Text, ToolCall, ToolReturn
from holdfast.core.runs import RunStatus, StopReason
from holdfast.core.turn import PlannedCall
from holdfast.engine.progress import EffectProgress
from holdfast.errors import (
    McpCallLost,
    McpError,
    McpTimedOut,
    McpUnauthorized,
    McpUnavailable,
    StoreUnavailable,
)
from holdfast.ports.mcp import RemoteResult
from holdfast.ports.services import Limits
from holdfast.ports.toolbox import ToolContext
from holdfast.usecases import agent_relations, mcp_calls, mcp_servers, messages, runs
from holdfast.usecases.messages import MessageInput, NewSend

TEXT = {"type": "string"}
LOOK = remote_tool("look", city=TEXT, days_={"type": "integer"})
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)
PICTURE = Image("image/png", base64.b64encode(PNG).decode())
ROME = {"city": "Rome"}


@pytest.fixture
def rig(store: SqliteStore) -> McpRig:
    return McpRig(store)


async def call_once(rig: McpRig, agent: Agent, **arguments: Any) -> ToolReturn:
    """Let the model call ``look`` once; the loop goes on to an answer, whatever becomes of the call."""
    rig.model.script = [call_with(("c1", "look", arguments or ROME)), text_answer("So it is.")]
    async with rig.run_worker():
        reply = await rig.say(agent)
    assert reply.ended.stop_reason is StopReason.END_TURN
    assert reply.messages[-1].text == "So it is."
    return (await rig.returns(agent))["c1"]


async def test_a_call_returns_what_the_server_says(rig: McpRig) -> None:
    agent = await rig.make_mcp_agent(LOOK)
    returned = await call_once(rig, agent)
    assert returned.outcome is Outcome.FINISHED
    assert returned.text == "look({'city': 'Rome'})"
    (call,) = rig.mcp.calls
    assert (call.endpoint.server_name, call.endpoint.agent_id) == (SERVER, agent.id)


@pytest.mark.tools(13)
@pytest.mark.parametrize(
    ("failure", "outcome", "text"),
    [
        (
            McpUnavailable(SERVER, "Connection refused"),
            Outcome.NOT_STARTED,
            "Error executing function look: LettaMCPConnectionError: INTERNAL_SERVER_ERROR: Connection refused",
        ),
        (
            McpUnauthorized(SERVER),
            Outcome.NOT_STARTED,
            "Error executing function look: LettaMCPConnectionError: INTERNAL_SERVER_ERROR: 401 Unauthorized",
        ),
        (
            McpTimedOut(SERVER, "connecting", 30),
            Outcome.NOT_STARTED,
            (
                "Error executing function look: LettaMCPConnectionError: INTERNAL_SERVER_ERROR: "
                "Timed out while connecting for MCP server weather (timeout=30s)."
            ),
        ),
        (
            McpTimedOut(SERVER, "executing tool look", 60, has_begun=True),
            Outcome.UNKNOWN,
            (
                "Timed out while executing tool look for MCP server weather (timeout=60s). "
                "Whether the call had an effect is unknown."
            ),
        ),
        (
            McpCallLost(SERVER, "the connection was closed"),
            Outcome.UNKNOWN,
            (
                "The MCP server weather cannot be used: the connection was closed. "
                "Whether the call had an effect is unknown."
            ),
        ),
        (
            McpError(SERVER, "its answer is too large"),
            Outcome.FAILED,
            "Error executing function look: The MCP server weather cannot be used: its answer is too large",
        ),
    ],
)
async def test_a_call_that_fails_says_how_and_the_loop_goes_on(
    rig: McpRig, failure: Exception, outcome: Outcome, text: str
) -> None:
    agent = await rig.make_mcp_agent(LOOK)
    rig.mcp.failures = [failure]
    returned = await call_once(rig, agent)
    assert (returned.outcome, returned.text) == (outcome, text)
    assert rig.model.questions[1].history[-1].tool_returns == (returned,)


async def test_an_error_of_the_server_is_a_failed_call_with_its_own_text(rig: McpRig) -> None:
    agent = await rig.make_mcp_agent(LOOK)
    rig.mcp.answer = lambda call: RemoteResult((Text("No such city."),), is_error=True)
    returned = await call_once(rig, agent)
    assert (returned.outcome, returned.text) == (Outcome.FAILED, "No such city.")


@pytest.mark.parametrize("failure", [None, McpError(SERVER, "cut \ud83d")])
async def test_half_a_character_in_what_a_server_says_is_replaced(
    rig: McpRig, failure: McpError | None
) -> None:
    """It could not be stored."""
    agent = await rig.make_mcp_agent(LOOK)
    rig.mcp.answer = lambda call: RemoteResult((Text("cut \ud83d"),))
    rig.mcp.failures = [failure] if failure is not None else []
    assert (await call_once(rig, agent)).text.endswith("cut ?")


async def test_a_call_that_did_not_reach_its_server_does_not_end_a_loop_that_it_would_end(
    rig: McpRig,
) -> None:
    agent = await rig.make_mcp_agent(LOOK, rules=(tool_rules.ExitLoop(tool_name="look"),))
    rig.mcp.failures = [McpUnavailable(SERVER, "gone")]
    await call_once(rig, agent)


@pytest.mark.tools(15)
async def test_a_secret_that_is_missing_is_named_and_nothing_is_asked(rig: McpRig) -> None:
    agent = await rig.make_mcp_agent(LOOK, token="{{ KEY }} {{ OTHER }}", secrets={"OTHER": "x9x9"})
    returned = await call_once(rig, agent)
    assert returned.outcome is Outcome.NOT_STARTED
    assert returned.text == (
        "Error executing function look: ValueError: The MCP server weather needs the secret KEY, "
        "which this agent does not have."
    )
    assert rig.mcp.calls == []


async def test_a_server_that_was_deleted_meanwhile_is_not_found(rig: McpRig) -> None:
    agent = await rig.make_mcp_agent(LOOK)
    rig.model.gate = asyncio.Event()
    rig.model.script = [call_with(("c1", "look", ROME))]
    (server,) = await rig.read(lambda tx: tx.mcp_servers.list(ACTOR.organization_id))
    async with rig.run_worker():
        run = await rig.submit(agent)
        await wait_until_set(rig.model.asked)
        await mcp_servers.delete(rig.services, ACTOR, server.id)
        rig.model.gate.set()
        assert (await rig.wait_for_end(run)).status is RunStatus.COMPLETED
    returned = (await rig.returns(agent))["c1"]
    assert returned.outcome is Outcome.NOT_STARTED
    assert f"MCPServer not found with id='{server.id}'" in returned.text


async def test_arguments_that_only_old_loops_know_are_not_sent(rig: McpRig) -> None:
    agent = await rig.make_mcp_agent(LOOK)
    await call_once(rig, agent, city="Rome", request_heartbeat=True, thinking="Where is it?")
    assert rig.mcp.calls[0].arguments == ROME


async def test_nulls_for_what_a_model_leaves_out_of_a_strict_schema_are_not_sent(
    rig: McpRig,
) -> None:
    agent = await rig.make_mcp_agent(LOOK)
    settings = structs.replace(agent.model.settings, strict=True)
    strict = structs.replace(agent, model=structs.replace(agent.model, settings=settings))
    await rig.services.store.write(lambda tx: tx.agents.save(strict))
    await call_once(rig, agent, city="Rome", days=None)
    assert rig.mcp.calls[0].arguments == ROME


async def test_a_number_that_json_does_not_have_is_refused_before_anything_is_sent(
    rig: McpRig,
) -> None:
    _, (tool,) = await rig.add_server(LOOK)
    returned = await run_directly(rig, tool, {"city": float("nan")})
    assert returned.outcome is Outcome.NOT_STARTED
    assert "not JSON compliant" in returned.text
    assert returned.text.endswith("Nothing was sent to the MCP server.")
    assert rig.mcp.calls == []


async def test_texts_are_joined_and_cut_to_the_limit_of_the_tool(rig: McpRig) -> None:
    _, (tool,) = await rig.add_server(LOOK)
    tool = structs.replace(tool, return_char_limit=8)
    rig.mcp.answer = lambda call: RemoteResult((Text("one"), Text("two"), PICTURE, Text("three")))
    returned = await run_directly(rig, tool)
    assert [part for part in returned.content if isinstance(part, Image)] == [PICTURE]
    first, _, last = returned.content
    assert first == Text("one two")
    assert isinstance(last, Text)
    assert last.text.startswith("t... [NOTE: function output was truncated")


async def run_directly(
    rig: McpRig, tool: Any, arguments: dict[str, Any] | None = None, **context: Any
) -> ToolReturn:
    planned = PlannedCall(ToolCall("c1", tool.name, "{}"), arguments or {})
    where = ToolContext(
        agent_id="agent-1", organization_id=ACTOR.organization_id, thread_id="agent-1", **context
    )
    return await asyncio.wait_for(rig.router.run(tool, planned, where), WAIT_SECONDS)


async def test_pictures_that_a_model_would_refuse_are_only_described(
    rig: McpRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, (tool,) = await rig.add_server(LOOK)
    monkeypatch.setattr(mcp_calls, "MAX_IMAGES", 2)
    fake = Image("image/svg+xml", base64.b64encode(b"<svg/>").decode())
    broken = Image("image/png", "no base64")
    rig.mcp.answer = lambda call: RemoteResult((fake, broken, PICTURE, PICTURE, PICTURE))
    returned = await run_directly(rig, tool)
    described = f"[image image/png, {len(PNG)} bytes]"
    assert returned.content == (
        Text("[image image/svg+xml, 6 bytes] [image image/png, 0 bytes]"),
        PICTURE,
        PICTURE,
        Text(described),
    )


async def test_a_result_without_anything_says_so(rig: McpRig) -> None:
    _, (tool,) = await rig.add_server(LOOK)
    rig.mcp.answer = lambda call: RemoteResult(())
    assert (await run_directly(rig, tool)).text == "Empty response from tool"


async def test_a_call_that_could_not_be_looked_up_was_not_made(
    rig: McpRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, (tool,) = await rig.add_server(LOOK)

    async def fail(_work: object) -> None:
        raise StoreUnavailable("TEST: out of reach")

    monkeypatch.setattr(rig.services.store, "read", fail)
    returned = await run_directly(rig, tool)
    assert returned.outcome is Outcome.NOT_STARTED
    assert rig.mcp.calls == []


async def test_a_call_has_the_login_of_who_sent_the_message(
    rig: McpRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    async def find_token(*given: object, **_: object) -> None:
        user_id = str(given[2])
        asked.append(user_id)

    monkeypatch.setattr("holdfast.usecases.mcp_logins.find_token", find_token)
    agent = await rig.make_mcp_agent(LOOK)
    rig.model.script = [call_with(("c1", "look", ROME))]
    somebody = Actor("user-11111111-1111-4111-8111-111111111111", ACTOR.organization_id)
    item = MessageInput(role=Role.USER, content=(Text("Hi"),))
    async with rig.run_worker():
        run = await messages.send(rig.services, somebody, NewSend(agent_id=agent.id, input=(item,)))
        ended = await rig.wait_for_end(run)
    assert ended.request.user_id == somebody.user_id
    await agent_relations.run_tool(rig.services, somebody, agent.id, "look", ROME)
    assert asked == [somebody.user_id] * 2


async def test_a_tool_is_run_with_the_secrets_of_its_agent_without_a_message(rig: McpRig) -> None:
    agent = await rig.make_mcp_agent(LOOK, token="{{ KEY }}", secrets={"KEY": "abc"})
    returned = await agent_relations.run_tool(rig.services, ACTOR, agent.id, "look", ROME)
    assert returned.ok
    (call,) = rig.mcp.calls
    assert dict(call.endpoint.headers)["Authorization"] == "Bearer abc"
    assert call.endpoint.agent_id == agent.id


async def test_an_approved_call_is_made_with_the_edited_arguments(rig: McpRig) -> None:
    agent = await rig.make_mcp_agent(LOOK, rules=(tool_rules.RequiresApproval(tool_name="look"),))
    rig.model.script = [call_with(("c1", "look", ROME))]
    async with rig.run_worker():
        reply = await rig.say(agent)
        assert reply.ended.stop_reason is StopReason.REQUIRES_APPROVAL
        assert rig.mcp.calls == []
        await answer(rig, agent, Decision("c1", approve=True, arguments={"city": "Oslo"}))
    assert [call.arguments for call in rig.mcp.calls] == [{"city": "Oslo"}]


async def test_a_denied_call_is_never_made(rig: McpRig) -> None:
    agent = await rig.make_mcp_agent(LOOK, rules=(tool_rules.RequiresApproval(tool_name="look"),))
    rig.model.script = [call_with(("c1", "look", ROME))]
    async with rig.run_worker():
        await rig.say(agent)
        await answer(rig, agent, Decision("c1", approve=False, reason="no"))
    assert rig.mcp.calls == []
    assert (await rig.returns(agent))["c1"].outcome is Outcome.DENIED


async def test_tools_that_may_run_side_by_side_do(rig: McpRig) -> None:
    agent = await rig.make_mcp_agent(remote_tool("fast_one"), remote_tool("fast_two"))
    rig.model.script = [call_with(("c1", "fast_one", {}), ("c2", "fast_two", {}))]
    rig.hold_calls()
    rig.mcp.answer = lambda call: RemoteResult((Text(call.tool),))
    async with rig.run_worker():
        run = await rig.submit(agent)
        await eventually(lambda: len(rig.mcp.calls) == 2)
        rig.mcp.gate.set()
        await rig.wait_for_end(run)
    assert {key: item.text for key, item in (await rig.returns(agent)).items()} == {
        "c1": "fast_one",
        "c2": "fast_two",
    }


async def test_a_call_is_stored_before_it_is_made_and_not_made_again(store: SqliteStore) -> None:
    first, second = McpRig(store), McpRig(store)
    agent = await first.make_mcp_agent(LOOK)
    first.model.script = [call_with(("c1", "look", ROME))]
    first.hold_calls()
    async with first.run_worker():
        run = await first.submit(agent)
        await wait_until_set(first.mcp.asked)
    async with second.run_worker():
        assert (await second.wait_for_end(run)).status is RunStatus.COMPLETED
    (told,) = second.model.questions[0].history[-1].tool_returns
    assert told.outcome is Outcome.UNKNOWN
    assert second.mcp.calls == []


async def test_a_cancel_of_the_run_cancels_the_call_and_no_other(rig: McpRig) -> None:
    agent = await rig.make_mcp_agent(LOOK)
    rig.model.script = [call_with(("c1", "look", ROME))]
    rig.hold_calls()
    async with rig.run_worker():
        run = await rig.submit(agent)
        await wait_until_set(rig.mcp.asked)
        await asyncio.wait_for(runs.cancel(rig.services, ACTOR, run.id), WAIT_SECONDS)
        await wait_until_set(rig.mcp.cancelled)
    rig.mcp.gate.set()
    await assert_cancelled(rig, agent, run)
    assert (await rig.returns(agent))["c1"].outcome is Outcome.KILLED


CHANGED = remote_tool("look", town=TEXT)


@pytest.mark.parametrize(
    ("offered", "change"),
    [
        ((), "no longer offers this tool"),
        ((CHANGED,), "has changed the parameters of this tool"),
        ((LOOK,), None),
    ],
)
async def test_a_failed_call_looks_whether_the_tool_has_changed(
    rig: McpRig, caplog: pytest.LogCaptureFixture, offered: Any, change: str | None
) -> None:
    caplog.set_level(logging.WARNING)
    _, (tool,) = await rig.add_server(LOOK)
    rig.mcp.tools[SERVER] = offered
    rig.mcp.answer = lambda call: RemoteResult((Text("Wrong arguments."),), is_error=True)
    returned = await run_directly(rig, tool)
    logged = [record for record in caplog.records if record.message == "mcp.tool_changed"]
    if change is None:
        assert (returned.text, logged) == ("Wrong arguments.", [])
    else:
        assert returned.text.startswith(f"Wrong arguments. The MCP server weather {change} since")
        (record,) = logged
        assert vars(record)["tool"] == "look"
    # Nothing is changed by it.
    assert await rig.read(lambda tx: tx.tools.get(ACTOR.organization_id, tool.id)) == tool


async def test_the_list_is_not_asked_for_again_at_once(rig: McpRig) -> None:
    _, (tool,) = await rig.add_server(LOOK)
    rig.mcp.answer = lambda call: RemoteResult((Text("No."),), is_error=True)
    for _ in range(3):
        await run_directly(rig, tool)
    assert len(rig.mcp.listed) == 1


async def test_a_list_that_does_not_come_delays_a_failed_call_only_briefly(
    rig: McpRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp_calls, "LISTING_SECONDS", 0.01)
    _, (tool,) = await rig.add_server(LOOK)

    def fail(call: McpCall) -> RemoteResult:
        rig.hold_calls()
        return RemoteResult((Text("No."),), is_error=True)

    rig.mcp.answer = fail
    assert (await run_directly(rig, tool)).text == "No."


async def test_a_call_may_take_as_long_as_its_own_limits_say(store: SqliteStore) -> None:
    limits = Limits(tool_timeout_seconds=10, mcp_connect_seconds=30, mcp_call_seconds=4_000)
    rig = McpRig(store, limits)
    agent = await rig.make_mcp_agent(remote_tool("fast_look"), remote_tool("fast_list"))
    both = [call_with(("c1", "fast_look", {}), ("c2", "fast_list", {}))]
    assert await read_expected_quiet(rig, agent, both) == 4_060
    custom = await rig.make_agent("roll")
    assert await read_expected_quiet(rig, custom, [call_answer(("c1", "roll"))]) == 10


async def read_expected_quiet(rig: McpRig, agent: Agent, script: list[Any]) -> float:
    """How long the calls that the model makes may show no progress."""
    seen: list[float] = []
    record = EffectProgress.record_progress

    def note(progress: EffectProgress, expected_quiet_seconds: float = 0.0) -> None:
        record(progress, expected_quiet_seconds)
        seen.append(expected_quiet_seconds)

    rig.model.script = script
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EffectProgress, "record_progress", note)
        async with rig.run_worker():
            await rig.wait_for_end(await rig.submit(agent))
    return max(seen)
