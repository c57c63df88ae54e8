"""Tools of MCP servers, called by agents: secrets, failures, approvals, pictures, progress and cancels (tools-v1 §1.8)."""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from letta_client import APIStatusError, Letta, NotFoundError
from letta_client.types import Tool
from tests.support.client_objects import as_dict, as_dicts, eventually, history, run_tool
from tests.support.mcp_server import McpTestServer
from tests.support.mcp_tools import text_result
from tests.support.server_process import ServerProcess
from tests.support.stream_items import IGNORE_DEPRECATION
from tests.support.wire_approvals import allow, answer
from tests.support.wire_checks import assert_answers
from tests.support.wire_server import MODELS, connect, variables

from holdfast.testing import Answer, ProviderRequest, ScriptedProvider, ToolCall

if TYPE_CHECKING:
    from tests.support.wire_server import MakeAgent

pytestmark = [pytest.mark.slow, IGNORE_DEPRECATION]

WAIT_SECONDS = 60

AddServer = Callable[..., dict[str, Tool]]


@pytest.fixture
def mcp() -> Iterator[McpTestServer]:
    with McpTestServer() as server:
        yield server


@pytest.fixture
def add_server(client: Letta, mcp: McpTestServer) -> Iterator[AddServer]:
    """Makes the MCP server known; returns its tools by name. It is deleted at the end."""
    made: list[str] = []

    def add(name: str = "weather", **config: Any) -> dict[str, Tool]:
        server_id, tools = register(client, mcp, name, **config)
        made.append(server_id)
        return tools

    yield add
    for server_id in made:
        with suppress(NotFoundError):
            client.mcp_servers.delete(server_id)


def register(
    client: Letta, mcp: McpTestServer, name: str = "weather", **config: Any
) -> tuple[str, dict[str, Tool]]:
    """The id of the server, and its tools by name."""
    given: Any = {"mcp_server_type": "streamable_http", "server_url": mcp.url, **config}
    server_id = str(client.mcp_servers.create(server_name=name, config=given).id)
    return server_id, {str(tool.name): tool for tool in client.mcp_servers.tools.list(server_id)}


def ask(client: Letta, provider: ScriptedProvider, agent_id: str, *calls: ToolCall) -> Any:
    """The tool return of calls that the model makes, after which it answers."""
    provider.script(Answer(*calls), "So it is.")
    reply = as_dicts(client.agents.messages.create(agent_id, input="Go on").messages)
    assert reply[-1]["content"] == "So it is."
    (returned,) = [item for item in reply if item["message_type"] == "tool_return_message"]
    return returned


def last_headers(mcp: McpTestServer, tool: str = "echo") -> dict[str, str]:
    return {key.lower(): value for key, value in mcp.calls_of(tool)[-1].headers.items()}


ECHO = ToolCall("echo", {"text": "hey"}, id="call_1")


def test_a_tool_is_called_and_its_result_goes_back_to_the_model(
    client: Letta,
    provider: ScriptedProvider,
    make_agent: "MakeAgent",
    add_server: AddServer,
    model: str,
) -> None:
    agent = make_agent(tool_ids=[add_server()["echo"].id])
    returned = ask(client, provider, agent.id, ECHO)
    assert (returned["status"], returned["tool_return"]) == ("success", "hey")
    assert "hey" in str(provider.requests[-1].messages)
    assert run_tool(client, agent, "echo", text="again") == ("success", "again")


@pytest.mark.tools(7)
def test_what_holdfast_says_about_schemas_is_not_sent_to_the_provider(
    client: Letta,
    provider: ScriptedProvider,
    make_agent: "MakeAgent",
    mcp: McpTestServer,
    add_server: AddServer,
    model: str,
) -> None:
    properties = {"city": {"type": "string"}, "request_heartbeat": {"type": "boolean"}}
    schema = {"type": "object", "properties": properties, "required": ["city", "request_heartbeat"]}
    mcp.add_tool("look", input_schema=schema)
    tools = add_server()
    agent = make_agent(tool_ids=[tools["look"].id, tools["echo"].id])
    ask(client, provider, agent.id, ToolCall("look", {"city": "Rome", "request_heartbeat": True}))
    assert "request_heartbeat" not in str([tool.json_schema for tool in tools.values()])
    for request in provider.requests:
        offered = json.dumps(request.tools)
        assert "mcp:" not in offered
        assert "request_heartbeat" not in offered
    assert mcp.calls_of("look")[0].arguments == {"city": "Rome"}


@pytest.mark.tools(8)
def test_a_schema_that_cannot_be_strict_is_sent_as_it_is_beside_strict_ones(
    client: Letta,
    provider: ScriptedProvider,
    make_agent: "MakeAgent",
    mcp: McpTestServer,
    add_server: AddServer,
) -> None:
    free = {
        "type": "object",
        "properties": {"data": {"type": "object", "additionalProperties": True}},
    }
    mcp.add_tool("free", input_schema=free)
    mcp.add_tool(
        "bad",
        input_schema={"type": "object", "properties": {"x": {"type": "array"}}, "required": ["x"]},
    )
    days = {"city": {"type": "string"}, "days": {"type": "integer"}}
    mcp.add_tool("look", input_schema={"type": "object", "properties": days, "required": ["city"]})
    tools = add_server()
    assert "bad" not in tools
    assert (tools["free"].json_schema or {})["mcp:SCHEMA_STATUS"] == "NON_STRICT_ONLY"
    settings: Any = {"provider_type": "openai", "strict": True}
    agent = make_agent(tool_ids=[tools["free"].id, tools["look"].id], model_settings=settings)
    ask(client, provider, agent.id, ToolCall("look", {"city": "Rome", "days": None}))
    offered = {tool["name"]: tool for tool in map(_function, provider.requests[0].tools)}
    assert not offered["free"].get("strict")
    assert offered["look"]["strict"] is True
    parameters = offered["look"]["parameters"]
    assert parameters["required"] == ["city", "days"]
    assert parameters["properties"]["days"]["type"] == ["integer", "null"]
    assert parameters["additionalProperties"] is False
    # What the model leaves out is null there, and no argument for the server.
    assert mcp.calls_of("look")[0].arguments == {"city": "Rome"}


def _function(tool: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = tool.get("function", tool)
    return found


@pytest.mark.tools(13)
def test_a_tool_that_fails_is_an_error_for_the_model_and_the_loop_goes_on(
    client: Letta,
    provider: ScriptedProvider,
    make_agent: "MakeAgent",
    mcp: McpTestServer,
    add_server: AddServer,
    model: str,
) -> None:
    tools = add_server()
    agent = make_agent(tool_ids=[tools["fail"].id, tools["crash"].id, tools["echo"].id])
    failed = ask(client, provider, agent.id, ToolCall("fail", {"message": "No paper."}))
    assert (failed["status"], failed["tool_return"]) == ("error", "No paper.")
    crashed = ask(client, provider, agent.id, ToolCall("crash", {}))
    assert crashed["status"] == "error"
    assert "The server has no more paper." in crashed["tool_return"]
    mcp.stop()
    gone = ask(client, provider, agent.id, ECHO)
    assert gone["status"] == "error"
    expected = "Error executing function echo: LettaMCPConnectionError: INTERNAL_SERVER_ERROR: "
    assert gone["tool_return"].startswith(expected)
    mcp.start()
    assert ask(client, provider, agent.id, ECHO)["tool_return"] == "hey"


@pytest.mark.tools(14)
def test_each_agent_uses_its_own_secrets(
    client: Letta,
    provider: ScriptedProvider,
    make_agent: "MakeAgent",
    mcp: McpTestServer,
    add_server: AddServer,
) -> None:
    tool = add_server(auth_token="Bearer {{ KEY | none }}", auth_header="Authorization")["echo"]
    nobody = make_agent(tool_ids=[tool.id])
    one = make_agent(tool_ids=[tool.id], secrets={"KEY": "abc"})
    other = make_agent(tool_ids=[tool.id], secrets={"KEY": "xyz"})
    for agent, sent in ((nobody, "none"), (one, "abc"), (other, "xyz"), (one, "abc")):
        assert ask(client, provider, agent.id, ECHO)["status"] == "success"
        assert last_headers(mcp)["authorization"] == f"Bearer {sent}"
    # A secret that was changed is used by the next call.
    client.agents.update(one.id, secrets={"KEY": "new"})
    ask(client, provider, one.id, ECHO)
    assert last_headers(mcp)["authorization"] == "Bearer new"


@pytest.mark.tools(15)
def test_a_placeholder_is_upper_case_and_a_missing_secret_is_named(
    client: Letta,
    provider: ScriptedProvider,
    make_agent: "MakeAgent",
    mcp: McpTestServer,
    add_server: AddServer,
    server: ServerProcess,
    http: Any,
) -> None:
    tool = add_server(custom_headers={"X-Small": "{{ key }}", "X-Large": "{{ LARGE | no }}"})[
        "echo"
    ]
    agent = make_agent(tool_ids=[tool.id], secrets={"LARGE": "s3cr3t-of-a-test"})
    ask(client, provider, agent.id, ECHO)
    assert last_headers(mcp)["x-small"] == "{{ key }}"
    assert last_headers(mcp)["x-large"] == "s3cr3t-of-a-test"
    config: Any = {
        "mcp_server_type": "streamable_http",
        "server_url": mcp.url,
        "auth_token": "{{ LARGE }} {{ NOWHERE }}",
    }
    known = next(item for item in client.mcp_servers.list() if item.server_name == "weather")
    client.mcp_servers.update(str(known.id), config=config)
    returned = ask(client, provider, agent.id, ECHO)
    assert returned["status"] == "error"
    assert returned["tool_return"] == (
        "Error executing function echo: ValueError: The MCP server weather needs the secret NOWHERE, "
        "which this agent does not have."
    )
    run_id = as_dicts(client.runs.list(agent_id=agent.id).items)[0]["id"]
    told = http.get(f"/v1/runs/{run_id}/messages").text + str(history(client, agent.id))
    assert "s3cr3t-of-a-test" not in told + server.log


@pytest.mark.tools(16)
def test_the_token_and_other_headers_are_sent_and_the_agent_is_named(
    client: Letta,
    provider: ScriptedProvider,
    make_agent: "MakeAgent",
    mcp: McpTestServer,
    add_server: AddServer,
) -> None:
    tool = add_server(
        auth_header="Authorization", auth_token="Bearer t0ken", custom_headers={"X-Team": "blue"}
    )["echo"]
    agent = make_agent(tool_ids=[tool.id])
    ask(client, provider, agent.id, ECHO)
    headers = last_headers(mcp)
    assert (headers["authorization"], headers["x-team"]) == ("Bearer t0ken", "blue")
    assert headers["x-agent-id"] == agent.id
    listing = {key.lower() for key in mcp.requests_of("tools/list")[0].headers}
    assert "x-agent-id" not in listing


@pytest.fixture
def hasty(
    running_provider: ScriptedProvider, tmp_path: Path
) -> Iterator[tuple[ServerProcess, Letta]]:
    """A server of its own that waits for a call only briefly."""
    patience = {"HOLDFAST_MCP_CALL_SECONDS": "0.5", "HOLDFAST_DRAIN_SECONDS": "0"}
    server = ServerProcess.start(tmp_path, **variables(running_provider) | patience)
    with connect(server.address) as letta:
        yield server, letta
    server.stop()


@pytest.mark.tools(25)
def test_a_tool_that_never_answers_ends_at_the_time_limit(
    hasty: tuple[ServerProcess, Letta], provider: ScriptedProvider, mcp: McpTestServer
) -> None:
    _, client = hasty
    server_id, tools = register(client, mcp)
    agent = client.agents.create(
        model=MODELS["openai"], include_base_tools=False, tool_ids=[tools["wait"].id]
    )
    returned = ask(client, provider, agent.id, ToolCall("wait", {}))
    assert returned["status"] == "error"
    expected = "Timed out while executing tool wait for MCP server weather (timeout=0.5s)."
    assert returned["tool_return"].startswith(expected)
    with pytest.raises(APIStatusError) as refused:
        client.mcp_servers.tools.run(tools["wait"].id, mcp_server_id=server_id)
    assert refused.value.status_code == 408
    assert expected in refused.value.response.json()["detail"]
    eventually(lambda: [call.is_cancelled for call in mcp.calls_of("wait")], all)


def test_a_picture_in_a_result_reaches_a_model_that_takes_pictures(
    client: Letta,
    provider: ScriptedProvider,
    make_agent: "MakeAgent",
    add_server: AddServer,
    model: str,
) -> None:
    agent = make_agent(tool_ids=[add_server()["picture"].id])
    returned = ask(client, provider, agent.id, ToolCall("picture", {}))
    (entry,) = returned["tool_returns"]
    (image,) = entry["tool_return"]
    assert image["source"]["media_type"] == "image/png"
    assert returned["tool_return"] == "[Image omitted]"
    assert image["source"]["data"] in str(provider.requests[-1].messages)
    # The next turn sends it again, and no provider finds fault with that.
    assert_answers(client, provider, agent.id)


def test_a_held_call_is_made_with_the_arguments_of_the_person(
    client: Letta,
    provider: ScriptedProvider,
    make_agent: "MakeAgent",
    mcp: McpTestServer,
    add_server: AddServer,
    model: str,
) -> None:
    tool = add_server()["echo"]
    client.tools.update(tool.id, default_requires_approval=True)
    for agent in (make_agent(tool_ids=[tool.id]), make_agent(tools=["echo"])):
        provider.script(Answer(ECHO))
        reply = client.agents.messages.create(agent.id, input="Go on")
        assert as_dict(reply.stop_reason)["stop_reason"] == "requires_approval"
        before = len(mcp.calls)
        provider.script("Done.")
        result, *_ = answer(client, agent.id, allow(ECHO.id, arguments={"text": "softly"}))
        assert result["tool_return"] == "softly"
        assert [call.arguments for call in mcp.calls[before:]] == [{"text": "softly"}]
    updated = make_agent()
    client.agents.update(updated.id, tool_ids=[tool.id])
    rules = as_dict(client.agents.retrieve(updated.id))["tool_rules"]
    assert [rule["tool_name"] for rule in rules] == ["echo"]


def test_calls_of_one_answer_run_side_by_side(
    client: Letta,
    provider: ScriptedProvider,
    make_agent: "MakeAgent",
    mcp: McpTestServer,
    add_server: AddServer,
    pool: ThreadPoolExecutor,
) -> None:
    tools = add_server()
    for name in ("wait", "echo"):
        client.tools.update(tools[name].id, enable_parallel_execution=True)
    agent = make_agent(tool_ids=[tools["wait"].id], parallel_tool_calls=True)
    calls = [ToolCall("wait", {"name": name}, id=f"call_{name}") for name in ("a", "b")]
    asking = pool.submit(ask, client, provider, agent.id, *calls)
    eventually(lambda: len(mcp.calls_of("wait")), lambda count: count == 2)
    mcp.release("b")
    mcp.release("a")
    returned = asking.result(WAIT_SECONDS)["tool_returns"]
    assert [item["tool_call_id"] for item in returned] == ["call_a", "call_b"]


def has_text(text: str) -> Callable[[ProviderRequest], bool]:
    return lambda request: request.user_text == text


@pytest.mark.parametrize("generation", ["modern", "handshake"])
def test_a_cancel_reaches_the_server_and_other_calls_go_on(
    client: Letta,
    provider: ScriptedProvider,
    make_agent: "MakeAgent",
    pool: ThreadPoolExecutor,
    generation: Any,
) -> None:
    with McpTestServer(generation=generation) as mcp:
        server_id, tools = register(client, mcp, f"weather-{generation}")
        try:
            agent = make_agent(tool_ids=[tools["wait"].id])
            other = client.conversations.create(agent_id=agent.id)
            for name in ("mine", "others"):
                call = ToolCall("wait", {"name": name}, id=f"call_{name}")
                provider.script(Answer(call), when=has_text(name))
            mine = pool.submit(client.agents.messages.create, agent.id, input="mine")
            others = pool.submit(
                client.conversations.messages.create, other.id, input="others", streaming=False
            )
            eventually(lambda: len(mcp.calls_of("wait")), lambda count: count == 2)
            run = next(
                run
                for run in as_dicts(client.runs.list(agent_id=agent.id).items)
                if not run.get("conversation_id")
            )
            client.agents.messages.cancel(agent.id, run_ids=[run["id"]])
            by_name = {call.arguments["name"]: call for call in mcp.calls_of("wait")}
            eventually(lambda: by_name["mine"].state, lambda state: state == "cancelled")
            way = "stream" if generation == "modern" else "notification"
            assert by_name["mine"].cancelled_by == way
            assert by_name["others"].state == "running"
            mcp.release("others")
            assert mine.result(WAIT_SECONDS)
            others.result(WAIT_SECONDS)
            assert by_name["others"].state == "finished"
            assert client.runs.retrieve(run["id"]).status == "cancelled"
        finally:
            client.mcp_servers.delete(server_id)


async def _count_slowly(tools: Any, context: Any, arguments: dict[str, Any]) -> Any:
    """Reports a step, then waits for the test before the next one."""
    for step in (1, 2):
        await context.session.report_progress(step, 2, f"step {step}")
        await tools.gate(f"step {step}").wait(None)
    return text_result("counted")


def test_progress_is_shown_on_the_stream_and_again_on_reconnect(
    client: Letta,
    provider: ScriptedProvider,
    make_agent: "MakeAgent",
    mcp: McpTestServer,
    add_server: AddServer,
    database: str,
) -> None:
    mcp.add_tool("count_slowly", _count_slowly)
    agent = make_agent(tool_ids=[add_server()["count_slowly"].id])
    provider.script(Answer(ToolCall("count_slowly", {}, id="call_1")), "Counted.")
    stream = client.agents.messages.stream(
        agent.id, input="Count", background=True, stream_tokens=True
    )
    items = []
    for item in stream:
        items.append(as_dict(item))
        if items[-1]["message_type"] == "event_message":
            mcp.release(items[-1]["event_data"]["message"])
    events = [item for item in items if item["message_type"] == "event_message"]
    assert [item["event_type"] for item in events] == ["tool_progress"] * 2
    assert [item["event_data"] for item in events] == [
        {
            "tool_call_id": "call_1",
            "tool_name": "count_slowly",
            "progress": step,
            "total": 2,
            "message": f"step {step}",
        }
        for step in (1, 2)
    ]
    kinds = [item["message_type"] for item in items]
    assert kinds.index("tool_return_message") > max(
        number for number, kind in enumerate(kinds) if kind == "event_message"
    )
    again = as_dicts(client.runs.messages.stream(events[0]["run_id"]))
    assert [item for item in again if item["message_type"] == "event_message"] == [
        {**item, "date": other["date"]}
        for item, other in zip(
            events, (item for item in again if item["message_type"] == "event_message"), strict=True
        )
    ]
    # Only readers of the stream are told.
    assert "event_message" not in {item["message_type"] for item in history(client, agent.id)}
    told = client.runs.messages.list(events[0]["run_id"]).items
    assert "event_message" not in {item["message_type"] for item in as_dicts(told)}


def test_progress_is_not_in_a_json_answer_nor_on_a_stream_that_does_not_want_it(
    client: Letta,
    provider: ScriptedProvider,
    make_agent: "MakeAgent",
    add_server: AddServer,
) -> None:
    agent = make_agent(tool_ids=[add_server()["count"].id])
    call = ToolCall("count", {"steps": 3})
    provider.script(Answer(call), "Counted.")
    reply = client.agents.messages.create(agent.id, input="Count")
    assert [item["message_type"] for item in as_dicts(reply.messages)] == [
        "tool_call_message",
        "tool_return_message",
        "assistant_message",
    ]
    provider.script(Answer(call), "Counted.")
    stream = client.agents.messages.stream(
        agent.id, input="Count", include_return_message_types=["assistant_message"]
    )
    assert "event_message" not in {item["message_type"] for item in as_dicts(stream)}


def test_a_server_that_dies_in_a_call_says_later_that_its_outcome_is_unknown(
    provider: ScriptedProvider,
    running_provider: ScriptedProvider,
    mcp: McpTestServer,
    pool: ThreadPoolExecutor,
    tmp_path: Path,
) -> None:
    server = ServerProcess.start(tmp_path, **variables(running_provider))
    with connect(server.address) as client:
        _, tools = register(client, mcp, auth_token="{{ KEY }}")
        agent = client.agents.create(
            model=MODELS["openai"],
            include_base_tools=False,
            tool_ids=[tools["wait"].id],
            secrets={"KEY": "s3cr3t-of-a-test"},
        )
        provider.script(Answer(ToolCall("wait", {}, id="call_1")), "I do not know.")
        sending = pool.submit(client.agents.messages.create, agent.id, input="Wait")
        eventually(lambda: len(mcp.calls_of("wait")), lambda count: count == 1)
        server.kill()
        assert sending.exception(WAIT_SECONDS) is not None
    log = server.log
    server = ServerProcess.start(tmp_path, **variables(running_provider))
    try:
        with connect(server.address) as client:
            rows = eventually(
                lambda: history(client, agent.id),
                lambda rows: rows[-1].get("content") == "I do not know.",
            )
        (returned,) = [row for row in rows if row["message_type"] == "tool_return_message"]
        assert returned["status"] == "error"
        assert "its outcome is unknown" in returned["tool_return"]
        assert "its outcome is unknown" in str(provider.requests[-1].messages)
        assert len(mcp.calls_of("wait")) == 1
        assert "s3cr3t-of-a-test" not in log + server.log
    finally:
        server.stop()


def test_a_tool_that_the_server_no_longer_has_is_told_of(
    client: Letta,
    provider: ScriptedProvider,
    make_agent: "MakeAgent",
    mcp: McpTestServer,
    add_server: AddServer,
    server: ServerProcess,
) -> None:
    agent = make_agent(tool_ids=[add_server()["echo"].id])
    mcp.remove_tool("echo")
    returned = ask(client, provider, agent.id, ECHO)
    assert returned["status"] == "error"
    assert "Unknown tool: echo" in returned["tool_return"]
    assert "The MCP server weather no longer offers this tool" in returned["tool_return"]
    assert "mcp.tool_changed" in server.log
