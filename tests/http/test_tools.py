"""Tools over HTTP (wire-v1 §2.5)."""

import threading
from typing import Any

import pytest
from httpx import AsyncClient

from holdfast.core import tool_search

ROLL = '''
def roll_dice_tool(num_sides: int) -> str:
    """
    A tool that returns a random number between 1 and num_sides.

    Args:
        num_sides: The number of sides on the die.
    """
    return "4"
'''
ROLL_SCHEMA = {
    "name": "roll_dice_tool",
    "description": "A tool that returns a random number between 1 and num_sides.",
    "parameters": {
        "type": "object",
        "properties": {
            "num_sides": {"type": "integer", "description": "The number of sides on the die."}
        },
        "required": ["num_sides"],
    },
}
UNKNOWN = "tool-123e4567-e89b-42d3-8456-426614174000"


def _source(name: str) -> str:
    return f'def {name}() -> str:\n    """Does {name}."""\n    return "done"\n'


async def _create(client: AsyncClient, **body: Any) -> dict[str, Any]:
    answer = await client.post("/v1/tools/", json={"source_code": ROLL} | body)
    assert answer.status_code == 200, answer.text
    tool: dict[str, Any] = answer.json()
    return tool


async def test_a_new_tool_has_its_schema_from_its_source(client: AsyncClient) -> None:
    tool = await _create(client)
    assert tool == {
        "id": tool["id"],
        "name": "roll_dice_tool",
        "description": ROLL_SCHEMA["description"],
        "tool_type": "custom",
        "source_type": "python",
        "source_code": ROLL,
        "json_schema": ROLL_SCHEMA,
        "args_json_schema": None,
        "return_char_limit": 50_000,
        "default_requires_approval": None,
        "enable_parallel_execution": False,
        "pip_requirements": None,
        "npm_requirements": None,
        "tags": [],
        "metadata_": {},
        "project_id": None,
        "created_by_id": "user-00000000-0000-4000-8000-000000000000",
        "last_updated_by_id": "user-00000000-0000-4000-8000-000000000000",
    }
    assert (await client.get(f"/v1/tools/{tool['id']}")).json() == tool


@pytest.mark.parametrize("method", ["POST", "PUT"])
async def test_a_tool_of_the_same_name_is_changed_and_keeps_its_id(
    client: AsyncClient, method: str
) -> None:
    tool = await _create(client, tags=["a"], default_requires_approval=True)
    source = ROLL.replace('"4"', '"6"')
    answer = await client.request(method, "/v1/tools/", json={"source_code": source})
    changed = answer.json()
    assert changed["id"] == tool["id"]
    assert changed["source_code"] == source
    assert (changed["tags"], changed["default_requires_approval"]) == (["a"], True)
    cleared = await client.request(method, "/v1/tools/", json={"source_code": source, "tags": []})
    assert cleared.json()["tags"] == []
    assert (await client.get("/v1/tools/count")).json() == 1


async def test_a_given_schema_is_taken(client: AsyncClient) -> None:
    schema = {"name": "other", "description": "Other.", "parameters": {}}
    source = f"def other(): pass\n\n{ROLL}"
    tool = await _create(client, source_code=source, json_schema=schema)
    assert tool["name"] == "other"
    assert tool["json_schema"]["parameters"]["type"] == "object"


async def test_given_parameters_leave_name_and_description_to_the_source(
    client: AsyncClient,
) -> None:
    parameters = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    tool = await _create(client, args_json_schema=parameters)
    assert tool["name"] == "roll_dice_tool"
    assert tool["args_json_schema"] == parameters
    assert tool["json_schema"]["parameters"] == parameters


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        ({}, 422, "source_code"),
        ({"source_code": ROLL, "colour": "red"}, 422, "colour"),
        ({"source_code": ROLL, "return_char_limit": 0}, 422, "return_char_limit"),
        ({"source_code": ROLL, "return_char_limit": 1_000_001}, 422, "return_char_limit"),
        ({"source_code": "def f(:"}, 400, "Failed to derive json schema: "),
        ({"source_code": "x = 1"}, 400, "Failed to derive json schema: "),
        ({"source_code": ROLL, "json_schema": {"name": "two words"}}, 400, "two words"),
        ({"source_code": ROLL, "json_schema": {"name": "other"}}, 400, "no function"),
        ({"source_code": "def f(:", "json_schema": {"name": "f"}}, 400, "line 1"),
        ({"source_code": "#" * 1_000_001, "json_schema": {"name": "f"}}, 400, "longer than"),
        ({"source_code": "export", "source_type": "typescript"}, 400, "Python"),
        ({"source_code": ROLL, "source_type": "cobol"}, 422, "source_type"),
        ({"source_code": ROLL, "pip_requirements": [{"name": "-r x"}]}, 400, "pip_requirements"),
        ({"source_code": ROLL, "npm_requirements": [{"name": "x"}]}, 400, "npm_requirements"),
    ],
)
async def test_a_tool_that_cannot_be_is_refused(
    client: AsyncClient, body: dict[str, Any], status: int, text: str
) -> None:
    answer = await client.post("/v1/tools/", json=body)
    assert answer.status_code == status
    assert text in answer.json()["detail"]
    assert (await client.get("/v1/tools/")).json() == []


async def test_an_update_changes_what_it_names(client: AsyncClient) -> None:
    tool = await _create(client)
    changes = {
        "description": "Mine.",
        "return_char_limit": 10,
        "default_requires_approval": True,
        "enable_parallel_execution": True,
        "tags": ["x", "x", "y"],
        "metadata_": {"k": 1},
        "pip_requirements": [{"name": "requests", "version": "2"}],
        "unknown": "is ignored",
    }
    answer = await client.patch(f"/v1/tools/{tool['id']}", json=changes)
    del changes["unknown"]
    assert answer.json() == tool | changes | {"tags": ["x", "y"]}


async def test_a_new_source_brings_its_own_schema(client: AsyncClient) -> None:
    tool = await _create(client)
    source = ROLL.replace("num_sides", "sides")
    answer = await client.patch(f"/v1/tools/{tool['id']}", json={"source_code": source})
    assert list(answer.json()["json_schema"]["parameters"]["properties"]) == ["sides"]


async def test_a_schema_that_comes_with_a_new_source_is_taken(client: AsyncClient) -> None:
    tool = await _create(client)
    source = "def roll_dice_tool(): pass"
    answer = await client.patch(
        f"/v1/tools/{tool['id']}", json={"source_code": source, "json_schema": ROLL_SCHEMA}
    )
    assert answer.json()["json_schema"] == ROLL_SCHEMA
    assert answer.json()["source_code"] == source


async def test_a_tool_cannot_take_the_name_of_another(client: AsyncClient) -> None:
    tool = await _create(client)
    await _create(client, source_code=_source("other"))
    answer = await client.patch(f"/v1/tools/{tool['id']}", json={"source_code": _source("other")})
    assert answer.status_code == 400
    assert (await client.get(f"/v1/tools/{tool['id']}")).json() == tool


async def test_a_deleted_tool_is_gone(client: AsyncClient) -> None:
    tool = await _create(client)
    answer = await client.delete(f"/v1/tools/{tool['id']}")
    assert (answer.status_code, answer.json()) == (200, None)
    assert (await client.get(f"/v1/tools/{tool['id']}")).status_code == 404


@pytest.mark.parametrize("method", ["GET", "PATCH", "DELETE"])
async def test_an_unknown_tool_is_not_found(client: AsyncClient, method: str) -> None:
    answer = await client.request(method, f"/v1/tools/{UNKNOWN}", json={"tags": []})
    assert answer.status_code == 404
    assert answer.json() == {"detail": f"Tool with ID {UNKNOWN} not found"}


async def test_pages_follow_the_sort_order_and_end(client: AsyncClient) -> None:
    made = [(await _create(client, source_code=_source(f"tool_{n}")))["id"] for n in range(5)]
    seen: list[str] = []
    params: dict[str, str | int] = {"limit": 2}
    while page := (await client.get("/v1/tools/", params=params)).json():
        seen += [tool["id"] for tool in page]
        params["after"] = seen[-1]
    assert seen == made[::-1]
    oldest_first = await client.get("/v1/tools/", params={"order": "asc"})
    assert [tool["id"] for tool in oldest_first.json()] == made
    old_name = await client.get("/v1/tools/", params={"ascending": True, "limit": 1})
    assert [tool["id"] for tool in old_name.json()] == made[:1]
    before = await client.get("/v1/tools/", params={"before": made[0], "limit": 2})
    assert [tool["id"] for tool in before.json()] == [made[2], made[1]]


async def test_an_unknown_cursor_is_not_found(client: AsyncClient) -> None:
    answer = await client.get("/v1/tools/", params={"after": UNKNOWN})
    assert answer.status_code == 404
    assert answer.json() == {"detail": f"No Tool found with id {UNKNOWN}"}


@pytest.mark.parametrize(
    "params",
    [{"limit": 0}, {"limit": 1001}, {"limit": "x"}, {"order": "up"}, {"order_by": "name; drop"}],
)
async def test_a_malformed_page_is_refused(client: AsyncClient, params: dict[str, str]) -> None:
    assert (await client.get("/v1/tools/", params=params)).status_code == 422


async def test_filters_narrow_the_list(client: AsyncClient) -> None:
    await client.post("/v1/tools/add-base-tools")
    one = await _create(client, source_code=_source("fetch_mail"))
    await _create(client, source_code=_source("send_mail"))

    async def names(**params: Any) -> set[str]:
        found = await client.get("/v1/tools/", params=params)
        return {tool["name"] for tool in found.json()}

    assert await names(name="send_mail") == {"send_mail"}
    assert await names(names=["send_mail", "memory_insert"]) == {"send_mail", "memory_insert"}
    assert await names(tool_ids=[one["id"]]) == {"fetch_mail"}
    assert await names(search="MAIL") == {"fetch_mail", "send_mail"}
    assert await names(tool_types=["letta_core"]) == {"conversation_search"}
    assert await names(exclude_tool_types=["letta_core", "letta_sleeptime_core"]) == {
        "fetch_mail",
        "send_mail",
    }
    built_in = {"conversation_search", "memory_insert", "memory_replace"}
    assert await names(return_only_letta_tools=True) == built_in
    count = await client.get("/v1/tools/count", params={"exclude_letta_tools": True})
    assert count.json() == 2


async def test_built_in_tools_are_added_once(client: AsyncClient) -> None:
    first = (await client.post("/v1/tools/add-base-tools")).json()
    again = (await client.post("/v1/tools/add-base-tools")).json()
    assert [tool["name"] for tool in first] == [
        "conversation_search",
        "memory_insert",
        "memory_replace",
    ]
    assert again == first
    assert first[0]["enable_parallel_execution"] is True
    assert first[0]["tool_type"] == "letta_core"


async def test_a_built_in_tool_keeps_its_work_but_takes_settings(client: AsyncClient) -> None:
    tool = (await client.post("/v1/tools/add-base-tools")).json()[0]
    refused = await client.post("/v1/tools/", json={"source_code": _source("conversation_search")})
    assert refused.status_code == 400
    path = f"/v1/tools/{tool['id']}"
    assert (await client.patch(path, json={"source_code": ROLL})).status_code == 400
    await client.patch(path, json={"default_requires_approval": True})
    await client.post("/v1/tools/add-base-tools")
    assert (await client.get(path)).json() == tool | {"default_requires_approval": True}


async def test_a_source_runs_without_being_stored(client: AsyncClient) -> None:
    answer = await client.post(
        "/v1/tools/run",
        json={
            "source_code": ROLL,
            "args": {"num_sides": 6},
            "env_vars": {"A": "1"},
            "pip_requirements": [{"name": "dice", "version": "1.0"}],
        },
    )
    shown = answer.json()
    assert shown["message_type"] == "tool_return_message"
    assert shown["status"] == "success"
    assert shown["tool_return"] == "roll_dice_tool {'num_sides': 6} {'A': '1'} ['dice==1.0']"
    assert (await client.get("/v1/tools/count")).json() == 0


async def test_thousands_of_tools_are_weighed_beside_other_requests(
    client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _create(client)
    threads: list[threading.Thread] = []
    search = tool_search.search

    def count_and_search(*given: Any) -> Any:
        threads.append(threading.current_thread())
        return search(*given)

    monkeypatch.setattr(tool_search, "search", count_and_search)
    found = await client.post("/v1/tools/search", json={"query": "roll"})

    assert [item["tool"]["name"] for item in found.json()] == ["roll_dice_tool"]
    assert len(threads) == 1
    assert threads[0] is not threading.current_thread()
