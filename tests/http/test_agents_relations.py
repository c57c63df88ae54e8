"""The tools and blocks of an agent (wire-v1 §2.4)."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fastapi import FastAPI
from httpx import AsyncClient

from holdfast.core.messages import Outcome, Text, ToolReturn
from holdfast.core.tools import Tool
from holdfast.core.turn import PlannedCall
from holdfast.http.app import HttpSettings, build_app
from holdfast.ports.services import Services
from holdfast.ports.toolbox import ToolContext

UNKNOWN = "123e4567-e89b-42d3-8456-426614174000"
NULL = b"null"


async def make(client: AsyncClient, **body: object) -> dict[str, Any]:
    answer = await client.post("/v1/agents/", json={"include_base_tools": False, **body})
    assert answer.status_code == 200, answer.text
    state: dict[str, Any] = answer.json()
    return state


async def make_block(client: AsyncClient, label: str, value: str = "x") -> str:
    answer = await client.post("/v1/blocks/", json={"label": label, "value": value})
    made: str = answer.json()["id"]
    return made


async def make_tool(client: AsyncClient, name: str, **extra: object) -> str:
    source = f'def {name}() -> str:\n    """Do it."""\n    return "done"\n'
    answer = await client.post("/v1/tools/", json={"source_code": source, **extra})
    made: str = answer.json()["id"]
    return made


async def system_text(client: AsyncClient, agent: dict[str, Any]) -> str:
    (message,) = (await client.get(f"/v1/agents/{agent['id']}/messages")).json()
    assert message["id"] == agent["message_ids"][0]
    text: str = message["content"]
    return text


async def rules(client: AsyncClient, path: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await client.get(path)).json()["tool_rules"]
    return found


async def test_attached_blocks_are_listed_newest_first(client: AsyncClient) -> None:
    ids = [await make_block(client, label) for label in ("a", "b", "c")]
    agent = await make(client, block_ids=ids)
    path = f"/v1/agents/{agent['id']}/core-memory/blocks"
    assert [block["id"] for block in (await client.get(path)).json()] == ids[::-1]
    page = await client.get(path, params={"after": ids[2], "limit": 1})
    assert [block["id"] for block in page.json()] == [ids[1]]
    page = await client.get(path, params={"order": "asc", "after": ids[0]})
    assert [block["id"] for block in page.json()] == ids[1:]


async def test_a_block_is_found_by_its_label_even_with_slashes(client: AsyncClient) -> None:
    agent = await make(client, memory_blocks=[{"label": "team/notes", "value": "v"}])
    path = f"/v1/agents/{agent['id']}/core-memory/blocks"
    for spelling in ("team/notes", "team%2Fnotes"):
        answer = await client.get(f"{path}/{spelling}")
        assert answer.json()["value"] == "v"
    missing = await client.get(f"{path}/none")
    assert missing.status_code == 404
    assert missing.json() == {
        "detail": f"No block with label 'none' found for agent '{agent['id']}'"
    }


async def test_an_edit_by_label_is_seen_by_every_agent_that_holds_the_block(
    client: AsyncClient,
) -> None:
    block = await make_block(client, "notes", "before")
    agent = await make(client, block_ids=[block])
    other = await make(client, block_ids=[block])
    answer = await client.patch(
        f"/v1/agents/{agent['id']}/core-memory/blocks/notes", json={"value": "after"}
    )
    assert (answer.json()["id"], answer.json()["value"]) == (block, "after")
    for holder in (agent, other):
        assert "\nafter\n" in await system_text(client, holder)


async def test_an_attached_block_is_in_view_at_once_and_a_detached_one_is_not(
    client: AsyncClient,
) -> None:
    agent = await make(client)
    block = await make_block(client, "notes", "remember")
    path = f"/v1/agents/{agent['id']}/core-memory/blocks"
    for _ in range(2):
        answer = await client.patch(f"{path}/attach/{block}")
        assert [item["id"] for item in answer.json()["blocks"]] == [block]
    assert "remember" in await system_text(client, agent)
    answer = await client.patch(f"{path}/detach/{block}")
    assert answer.json()["blocks"] == []
    assert "remember" not in await system_text(client, agent)
    again = await client.patch(f"{path}/detach/{block}")
    assert again.status_code == 404


async def test_two_blocks_of_one_label_cannot_be_attached(client: AsyncClient) -> None:
    agent = await make(client, memory_blocks=[{"label": "notes", "value": ""}])
    block = await make_block(client, "notes")
    path = f"/v1/agents/{agent['id']}/core-memory/blocks"
    answer = await client.patch(f"{path}/attach/{block}")
    assert answer.status_code == 409
    assert answer.headers["x-should-retry"] == "false"
    assert len((await client.get(path)).json()) == 1


async def test_the_old_memory_object_is_still_served(client: AsyncClient) -> None:
    agent = await make(client, memory_blocks=[{"label": "human", "value": "v"}])
    answer = await client.get(f"/v1/agents/{agent['id']}/core-memory")
    assert answer.json() == agent["memory"]


async def test_ten_tools_make_a_page(client: AsyncClient) -> None:
    ids = [await make_tool(client, f"tool_{number}") for number in range(12)]
    agent = await make(client, tool_ids=ids)
    path = f"/v1/agents/{agent['id']}/tools"
    first = [tool["id"] for tool in (await client.get(path)).json()]
    assert first == ids[:1:-1]
    rest = await client.get(path, params={"after": first[-1]})
    assert [tool["id"] for tool in rest.json()] == [ids[1], ids[0]]
    end = await client.get(path, params={"after": ids[0]})
    assert end.json() == []


async def test_attaching_a_tool_twice_is_attaching_it_once(client: AsyncClient) -> None:
    agent = await make(client)
    tool = await make_tool(client, "held", default_requires_approval=True)
    path = f"/v1/agents/{agent['id']}"
    for _ in range(2):
        answer = await client.patch(f"{path}/tools/attach/{tool}")
        assert (answer.status_code, answer.content) == (200, NULL)
    assert [item["id"] for item in (await client.get(f"{path}/tools")).json()] == [tool]
    assert [(rule["type"], rule["tool_name"]) for rule in await rules(client, path)] == [
        ("requires_approval", "held")
    ]


async def test_detaching_a_tool_that_is_not_attached_is_no_error(client: AsyncClient) -> None:
    tool = await make_tool(client, "plain")
    agent = await make(client, tool_ids=[tool])
    path = f"/v1/agents/{agent['id']}/tools"
    for _ in range(2):
        answer = await client.patch(f"{path}/detach/{tool}")
        assert (answer.status_code, answer.content) == (200, NULL)
    assert (await client.get(path)).json() == []


async def test_an_unknown_tool_cannot_be_attached(client: AsyncClient) -> None:
    agent = await make(client)
    answer = await client.patch(f"/v1/agents/{agent['id']}/tools/attach/tool-{UNKNOWN}")
    assert answer.status_code == 404


async def test_approval_is_switched_on_and_off(client: AsyncClient) -> None:
    rule = {"type": "exit_loop", "tool_name": "plain"}
    agent = await make(client, tool_rules=[rule])
    path = f"/v1/agents/{agent['id']}"
    for sent, kinds in (
        ({"json": {"requires_approval": True}}, ["exit_loop", "requires_approval"]),
        ({"json": {"requires_approval": True}}, ["exit_loop", "requires_approval"]),
        ({"params": {"requires_approval": "false"}}, ["exit_loop"]),
        ({"params": {"requires_approval": "true"}}, ["exit_loop", "requires_approval"]),
        ({"json": {"requires_approval": False}}, ["exit_loop"]),
    ):
        answer = await client.request("PATCH", f"{path}/tools/approval/plain", **sent)
        assert (answer.status_code, answer.content) == (200, NULL)
        assert [item["type"] for item in await rules(client, path)] == kinds


async def test_an_approval_update_must_say_on_or_off(client: AsyncClient) -> None:
    agent = await make(client)
    path = f"/v1/agents/{agent['id']}/tools/approval/plain"
    said_nothing = await client.patch(path)
    assert said_nothing.status_code == 422
    assert said_nothing.json()["detail"] == (
        "requires_approval must be provided either in request body or as query parameter"
    )
    unknown = await client.patch(path, json={"requires_approval": True, "extra": 1})
    assert unknown.status_code == 422


class RecordingToolbox:
    """A toolbox that remembers how it was asked."""

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome
        self.asked: list[tuple[str, dict[str, Any], str, dict[str, str]]] = []

    async def run(self, tool: Tool, planned: PlannedCall, context: ToolContext) -> ToolReturn:
        self.asked.append(
            (tool.name, planned.arguments, context.agent_id, dict(context.environment))
        )
        return ToolReturn(planned.call.id, tool.name, self.outcome, (Text("said"),), ("out",))


def with_toolbox(services: Services, toolbox: RecordingToolbox) -> FastAPI:
    return build_app(replace(services, toolbox=toolbox), HttpSettings())  # type: ignore[arg-type]  # it only runs


async def test_an_attached_tool_is_run_with_the_agents_variables(
    services: Services, client: AsyncClient, connect: Callable[[FastAPI], AsyncClient]
) -> None:
    tool = await make_tool(client, "plain")
    agent = await make(client, tool_ids=[tool], secrets={"KEY": "v"})
    toolbox = RecordingToolbox(Outcome.FINISHED)
    async with connect(with_toolbox(services, toolbox)) as direct:
        answer = await direct.post(
            f"/v1/agents/{agent['id']}/tools/plain/run", json={"args": {"x": 1}}
        )
    assert toolbox.asked == [("plain", {"x": 1}, agent["id"], {"KEY": "v"})]
    assert answer.json() == {
        "status": "success",
        "func_return": "said",
        "stdout": ["out"],
        "stderr": [],
        "sandbox_config_fingerprint": None,
        "agent_state": None,
    }


async def test_a_tool_that_fails_returns_nothing_but_its_error(
    services: Services, client: AsyncClient, connect: Callable[[FastAPI], AsyncClient]
) -> None:
    tool = await make_tool(client, "plain")
    agent = await make(client, tool_ids=[tool])
    async with connect(with_toolbox(services, RecordingToolbox(Outcome.FAILED))) as direct:
        answer = await direct.post(f"/v1/agents/{agent['id']}/tools/plain/run")
    assert answer.status_code == 200
    assert (answer.json()["status"], answer.json()["func_return"]) == ("error", None)
    assert answer.json()["stderr"] == ["said"]


async def test_a_tool_that_is_not_attached_is_not_run(client: AsyncClient) -> None:
    await make_tool(client, "plain")
    agent = await make(client)
    answer = await client.post(f"/v1/agents/{agent['id']}/tools/plain/run", json={})
    assert answer.status_code == 404
    assert answer.json() == {
        "detail": f"Tool 'plain' not found or not attached to agent '{agent['id']}'"
    }
