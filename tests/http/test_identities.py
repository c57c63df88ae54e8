"""Identities over HTTP (tools-v1 §2). What the official client shows is in ``tests/wire``."""

import asyncio
from typing import Any
from unittest.mock import patch

import pytest
from httpx import AsyncClient

from holdfast.core.identities import MAX_PROPERTIES, MAX_PROPERTIES_BYTES
from holdfast.core.ids import DEFAULT_ORGANIZATION_ID

UUID = "123e4567-e89b-42d3-8456-426614174000"
UNKNOWN = f"identity-{UUID}"
PATH = "/v1/identities/"


def prop(key: str, value: Any, kind: str = "string") -> dict[str, Any]:
    return {"key": key, "value": value, "type": kind}


async def make(client: AsyncClient, key: str = "maria", **body: Any) -> dict[str, Any]:
    fields = {"identifier_key": key, "name": "Maria", "identity_type": "user"}
    answer = await client.post(PATH, json=fields | body)
    assert answer.status_code == 200, answer.text
    made: dict[str, Any] = answer.json()
    return made


async def upsert(client: AsyncClient, **body: Any) -> dict[str, Any]:
    fields = {"identifier_key": "maria", "name": "Maria", "identity_type": "user"}
    answer = await client.put(PATH, json=fields | body)
    assert answer.status_code == 200, answer.text
    stored: dict[str, Any] = answer.json()
    return stored


async def make_agent(client: AsyncClient, **body: Any) -> str:
    answer = await client.post("/v1/agents/", json=body)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["id"])


async def make_block(client: AsyncClient) -> str:
    answer = await client.post("/v1/blocks/", json={"label": "notes", "value": "likes tea"})
    return str(answer.json()["id"])


async def list_ids(client: AsyncClient, path: str = PATH, **params: Any) -> list[str]:
    answer = await client.get(path, params=params)
    assert answer.status_code == 200, answer.text
    return [item["id"] for item in answer.json()]


async def test_a_new_identity_shows_every_field(client: AsyncClient) -> None:
    agent, block = await make_agent(client), await make_block(client)
    properties = [
        prop("tea", True, "boolean"),
        prop("cups", 3, "number"),
        prop("litres", 0.5, "number"),
        prop("address", {"city": ["Rome"]}, "json"),
        prop("age", "forty", "number"),
    ]
    made = await make(
        client,
        project_id="p",
        agent_ids=[agent, agent],
        block_ids=[block],
        properties=properties,
    )

    assert made == {
        "id": made["id"],
        "identifier_key": "maria",
        "name": "Maria",
        "identity_type": "user",
        "project_id": "p",
        "agent_ids": [agent],
        "block_ids": [block],
        "organization_id": DEFAULT_ORGANIZATION_ID,
        "properties": properties,
    }
    assert made["properties"][0]["value"] is True
    assert (await client.get(f"{PATH}{made['id']}")).json() == made
    assert (await client.get(PATH)).json() == [made]


async def test_an_identity_needs_a_key_a_name_and_a_type_only(client: AsyncClient) -> None:
    made = await make(client)
    assert [made[name] for name in ("project_id", "agent_ids", "block_ids", "properties")] == [
        None,
        [],
        [],
        [],
    ]


@pytest.mark.parametrize(
    "body",
    [
        {"identifier_key": None},
        {"name": None},
        {"identity_type": "robot"},
        {"identifier_key": "x" * 501},
        {"project_id": "x" * 101},
        {"unknown": 1},
        {"properties": [{"key": "k", "value": "v"}]},
        {"properties": [prop("k", None)]},
        {"properties": [prop("k", [1])]},
        {"properties": [prop("k", "v", "date")]},
        {"properties": [prop("k", "v") | {"unknown": 1}]},
        {"properties": [prop("k", "x" * MAX_PROPERTIES_BYTES)]},
    ],
)
@pytest.mark.parametrize("method", ["POST", "PUT"])
async def test_an_identity_that_cannot_be_is_refused(
    client: AsyncClient, method: str, body: dict[str, Any]
) -> None:
    fields = {"identifier_key": "maria", "name": "Maria", "identity_type": "user"}
    answer = await client.request(method, PATH, json=fields | body)
    assert answer.status_code == 422, answer.text
    assert await list_ids(client) == []


@pytest.mark.parametrize("body", [{"unknown": 1}, {"project_id": "p"}, {"name": 5}])
async def test_a_change_that_cannot_be_is_refused(
    client: AsyncClient, body: dict[str, Any]
) -> None:
    made = await make(client)
    assert (await client.patch(f"{PATH}{made['id']}", json=body)).status_code == 422


@pytest.mark.parametrize(
    ("field", "kind", "text"),
    [
        ("agent_ids", "agent", f"Items not found in agents: {{'agent-{UUID}'}}"),
        ("block_ids", "block", f"Block with ID block-{UUID} not found"),
    ],
)
async def test_what_an_identity_is_attached_to_must_exist(
    client: AsyncClient, field: str, kind: str, text: str
) -> None:
    made = await make(client)
    body = {"identifier_key": "new", "name": "New", "identity_type": "org"}
    unknown = {field: [f"{kind}-{UUID}"]}

    for answer in (
        await client.post(PATH, json=body | unknown),
        await client.put(PATH, json=body | unknown),
        await client.patch(f"{PATH}{made['id']}", json={"name": "Changed"} | unknown),
    ):
        assert (answer.status_code, answer.json()) == (404, {"detail": text})
    assert (await client.get(PATH)).json() == [made]


async def test_a_key_can_be_used_once_in_each_project(client: AsyncClient) -> None:
    bare = await make(client)
    in_project = await make(client, project_id="p")
    other = await make(client, "other", project_id="p")

    for answer, where in (
        (await client.post(PATH, json=_fields(bare)), "without a project"),
        (await client.post(PATH, json=_fields(in_project)), "in the project 'p'"),
        (
            await client.patch(f"{PATH}{other['id']}", json={"identifier_key": "maria"}),
            "in the project 'p'",
        ),
    ):
        assert answer.status_code == 409
        assert answer.headers["x-should-retry"] == "false"
        detail = answer.json()["detail"]
        assert "A unique constraint was violated for Identity. Check your input" in detail
        assert where in detail
    assert len(await list_ids(client)) == 3


def _fields(identity: dict[str, Any]) -> dict[str, Any]:
    names = ("identifier_key", "name", "identity_type", "project_id")
    return {name: identity[name] for name in names}


async def test_put_creates_and_then_replaces_what_is_given(client: AsyncClient) -> None:
    one, two, block = await make_agent(client), await make_agent(client), await make_block(client)
    made = await upsert(client, agent_ids=[one], block_ids=[block], properties=[prop("a", 1)])
    in_project = await upsert(client, project_id="p")
    assert made["id"] != in_project["id"]

    changed = await upsert(
        client, name="M", identity_type="other", agent_ids=[two], properties=[prop("b", 2)]
    )
    expected = {"name": "M", "identity_type": "other", "agent_ids": [two]}
    assert changed == made | expected | {"properties": [prop("b", 2)]}
    assert await upsert(client, name="M", identity_type="other") == changed
    emptied = await upsert(client, agent_ids=[], block_ids=[], properties=[])
    assert emptied == made | {"agent_ids": [], "block_ids": [], "properties": []}
    assert (await client.get(f"{PATH}{made['id']}")).json() == emptied


async def test_upserts_at_the_same_moment_make_one_identity(client: AsyncClient) -> None:
    stored = await asyncio.gather(*(upsert(client, name=f"M{number}") for number in range(10)))
    assert {item["id"] for item in stored} == {*await list_ids(client)}
    assert len({item["id"] for item in stored}) == 1


async def test_a_change_keeps_what_it_does_not_name(client: AsyncClient) -> None:
    one, two, block = await make_agent(client), await make_agent(client), await make_block(client)
    made = await make(client, agent_ids=[one], properties=[prop("a", 1)])
    path = f"{PATH}{made['id']}"

    nulls = dict.fromkeys(("name", "identifier_key", "identity_type", "agent_ids", "properties"))
    empty: dict[str, Any] = {"agent_ids": [], "block_ids": [], "properties": []}
    for body in ({}, nulls, empty):
        assert (await client.patch(path, json=body)).json() == made
    changes = {"name": "M", "identifier_key": "m", "identity_type": "org"}
    answer = await client.patch(path, json=changes | {"agent_ids": [two], "block_ids": [block]})
    assert answer.json() == made | changes | {"agent_ids": [one, two], "block_ids": [block]}


async def test_properties_are_merged_by_their_keys(client: AsyncClient) -> None:
    made = await make(client, properties=[prop("a", 1), prop("b", 2), prop("a", 3)])
    assert made["properties"] == [prop("a", 3), prop("b", 2)]
    path = f"{PATH}{made['id']}"

    given = [prop("c", 4), prop("a", {"k": None}, "json")]
    merged = await client.patch(path, json={"properties": given})
    expected = [prop("a", {"k": None}, "json"), prop("b", 2), prop("c", 4)]
    assert merged.json()["properties"] == expected
    replaced = await client.put(f"{path}/properties", json=[prop("z", True, "boolean")])
    assert replaced.json() == made | {"properties": [prop("z", True, "boolean")]}
    assert (await client.put(f"{path}/properties", json=[])).json()["properties"] == []
    invalid: list[Any] = [{}, [{"key": "k"}], [prop("k", None)]]
    for body in invalid:
        assert (await client.put(f"{path}/properties", json=body)).status_code == 422


async def test_properties_that_are_added_one_by_one_have_the_same_maximum(
    client: AsyncClient,
) -> None:
    made = await make(client, properties=[prop(f"k{n}", n) for n in range(MAX_PROPERTIES)])
    path = f"{PATH}{made['id']}"

    answer = await client.patch(path, json={"properties": [prop("one more", 1)]})
    assert answer.status_code == 422
    assert f"at most {MAX_PROPERTIES} properties" in answer.json()["detail"]
    same = await client.patch(path, json={"properties": [prop("k0", "changed")]})
    assert same.status_code == 200


async def test_a_change_that_changes_nothing_writes_nothing(client: AsyncClient) -> None:
    made = await make(client, properties=[prop("a", 1)])
    with patch("holdfast.adapters.store.identities.SqlIdentities.save") as save:
        answer = await client.patch(
            f"{PATH}{made['id']}", json={"name": "Maria", "properties": [prop("a", 1)]}
        )
    assert answer.json() == made
    save.assert_not_called()


async def test_filters_narrow_the_list_and_the_count(client: AsyncClient) -> None:
    maria = (await make(client))["id"]
    acme = (await make(client, "acme", name="Acme", identity_type="org", project_id="p"))["id"]

    for params, expected in (
        ({}, [acme, maria]),
        ({"order": "asc"}, [maria, acme]),
        ({"name": "ARI"}, [maria]),
        ({"identifier_key": "acme"}, [acme]),
        ({"identifier_key": "acm"}, []),
        ({"identity_type": "user"}, [maria]),
        ({"project_id": "p"}, [acme]),
        ({"project_id": "p", "identity_type": "user"}, []),
        ({"limit": "1"}, [acme]),
        ({"after": acme}, [maria]),
        ({"before": maria}, [acme]),
    ):
        assert await list_ids(client, **params) == expected, params
    assert (await client.get(f"{PATH}count")).json() == 2
    assert (await client.get(f"{PATH}count", params={"name": "Acme"})).json() == 1
    assert (await client.get(PATH, params={"identity_type": "robot"})).status_code == 422
    assert (await client.get(PATH, params={"after": UNKNOWN})).status_code == 404
    assert (await client.get(PATH, params={"after": "nope"})).status_code == 400


async def test_the_agents_and_blocks_of_an_identity_are_listed(client: AsyncClient) -> None:
    agents = [await make_agent(client, tags=["t"], hidden=number == 0) for number in range(3)]
    blocks = [await make_block(client) for _ in range(3)]
    made = await make(client, agent_ids=agents, block_ids=blocks)

    for kind, newest_first in (("agents", agents[::-1]), ("blocks", blocks[::-1])):
        path = f"{PATH}{made['id']}/{kind}"
        assert await list_ids(client, path) == newest_first
        assert await list_ids(client, path, limit=1, after=newest_first[0]) == [newest_first[1]]
        assert await list_ids(client, path, order="asc") == newest_first[::-1]
        assert (await client.get(f"{PATH}{UNKNOWN}/{kind}")).status_code == 404
    path = f"{PATH}{made['id']}/agents"
    assert (await client.get(path)).json()[0]["tags"] == []
    included = await client.get(path, params={"include": ["agent.tags", "agent.identities"]})
    assert included.json()[0]["tags"] == ["t"]
    assert included.json()[0]["identities"] == [made]


async def test_an_identity_that_is_not_there_is_not_found(client: AsyncClient) -> None:
    agent, block = await make_agent(client), await make_block(client)
    requests: list[tuple[str, str, Any]] = [
        ("GET", PATH, None),
        ("PATCH", PATH, {}),
        ("DELETE", PATH, None),
        *(
            ("PATCH", f"/v1/{holder}/identities/{change}/", None)
            for holder in (f"agents/{agent}", f"blocks/{block}")
            for change in ("attach", "detach")
        ),
    ]
    for method, path, body in requests:
        answer = await client.request(method, f"{path}{UNKNOWN}", json=body)
        text = f"Identity not found with id='{UNKNOWN}'"
        assert (answer.status_code, answer.json()) == (404, {"detail": text}), path
        assert (await client.request(method, f"{path}nope", json=body)).status_code == 422
    assert (await client.put(f"{PATH}{UNKNOWN}/properties", json=[])).status_code == 404
    for ids in ([UNKNOWN], ["nope"]):
        for answer in (
            await client.post("/v1/agents/", json={"identity_ids": ids}),
            await client.patch(f"/v1/agents/{agent}", json={"name": "n", "identity_ids": ids}),
        ):
            text = f"Identity not found with id='{ids[0]}'"
            assert (answer.status_code, answer.json()) == (404, {"detail": text})
    assert await list_ids(client, "/v1/agents/") == [agent]


@pytest.mark.parametrize("change", ["attach", "detach"])
@pytest.mark.parametrize("kind", ["agent", "block"])
async def test_an_agent_or_a_block_that_is_not_there_is_not_found(
    client: AsyncClient, kind: str, change: str
) -> None:
    made = await make(client)
    path = f"/v1/{kind}s/{kind}-{UUID}/identities/{change}/{made['id']}"
    assert (await client.patch(path)).status_code == 404


async def test_a_block_is_attached_and_detached(client: AsyncClient) -> None:
    made, block = await make(client), await make_block(client)
    stored = (await client.get(f"/v1/blocks/{block}")).json()

    for change, expected in (("attach", [block]), ("detach", [])):
        for _ in range(2):
            answer = await client.patch(f"/v1/blocks/{block}/identities/{change}/{made['id']}")
            assert (answer.status_code, answer.json()) == (200, stored)
        assert (await client.get(f"{PATH}{made['id']}")).json()["block_ids"] == expected


async def test_a_deleted_identity_leaves_its_agents_and_blocks(client: AsyncClient) -> None:
    agent, block = await make_agent(client), await make_block(client)
    made = await make(client, agent_ids=[agent], block_ids=[block])

    answer = await client.delete(f"{PATH}{made['id']}")

    assert (answer.status_code, answer.json()) == (200, None)
    assert (await client.delete(f"{PATH}{made['id']}")).status_code == 404
    shown = await client.get(f"/v1/agents/{agent}", params={"include": "agent.identities"})
    assert (shown.json()["identities"], shown.json()["identity_ids"]) == ([], [])
    assert (await client.get(f"/v1/blocks/{block}")).status_code == 200


async def test_a_deleted_agent_leaves_its_identities(client: AsyncClient) -> None:
    agent = await make_agent(client)
    made = await make(client, agent_ids=[agent])
    await client.delete(f"/v1/agents/{agent}")
    assert (await client.get(PATH)).json() == [made | {"agent_ids": []}]


async def test_an_update_of_an_agent_replaces_its_identities(client: AsyncClient) -> None:
    one, two, three = [await make(client, key) for key in "abc"]
    wanted = [one["id"], two["id"], one["id"]]
    created = (await client.post("/v1/agents/", json={"identity_ids": wanted})).json()
    path = f"/v1/agents/{created['id']}"

    assert {*created["identity_ids"]} == {one["id"], two["id"]}
    assert {item["identifier_key"] for item in created["identities"]} == {"a", "b"}
    assert created["identities"][0]["agent_ids"] == [created["id"]]
    shown = (await client.get(path, params={"include": "agent.identities"})).json()
    assert shown["identities"] == created["identities"]
    for body, expected in (
        ({"identity_ids": [three["id"], two["id"]]}, {three["id"], two["id"]}),
        ({"name": "unchanged"}, {three["id"], two["id"]}),
        ({"identity_ids": []}, set()),
    ):
        answer = (await client.patch(path, json=body)).json()
        assert {*answer["identity_ids"]} == expected
        assert {item["id"] for item in answer["identities"]} == expected
    bare = (await client.get(path)).json()
    assert (bare["identities"], bare["identity_ids"]) == ([], [])


async def test_the_old_way_to_include_identities_still_works(client: AsyncClient) -> None:
    made = await make(client)
    agent = await make_agent(client, identity_ids=[made["id"]])
    params = {"include_relationships": "identities"}
    shown = (await client.get(f"/v1/agents/{agent}", params=params)).json()
    assert shown["identity_ids"] == [made["id"]]


async def test_lists_are_filtered_by_identities(client: AsyncClient) -> None:
    first, both = await make_agent(client), await make_agent(client)
    block = await make_block(client)
    a = (await make(client, "a", agent_ids=[first, both], block_ids=[block]))["id"]
    b = (await make(client, "b", agent_ids=[both], block_ids=[block]))["id"]

    for params, agents, blocks in (
        ({"identity_id": a}, [both, first], [block]),
        ({"identifier_keys": ["a", "b"]}, [both, first], [block]),
        ({"identifier_keys": ["b"], "identity_id": a}, [both], [block]),
        ({"identifier_keys": ["c"], "identity_id": a}, [], []),
        ({"identity_id": UNKNOWN}, [], []),
    ):
        assert await list_ids(client, "/v1/agents/", **params) == agents, params
        assert await list_ids(client, "/v1/agents/", order="asc", **params) == agents[::-1]
        assert (await client.get("/v1/agents/count", params=params)).json() == len(agents)
        assert await list_ids(client, "/v1/blocks/", **params) == blocks, params
        assert (await client.get("/v1/blocks/count", params=params)).json() == len(blocks)
    assert b != a
    # V1 checks the form of the id in one of these lists only.
    assert await list_ids(client, "/v1/agents/", identity_id="nope") == []
    assert (await client.get("/v1/blocks/", params={"identity_id": "nope"})).status_code == 422


async def test_nothing_about_an_identity_is_in_the_prompt(client: AsyncClient) -> None:
    block = await make_block(client)
    made = await make(client, name="Secretive", block_ids=[block])
    agent = await make_agent(client, identity_ids=[made["id"]])

    shown = await client.get(f"/v1/agents/{agent}", params={"include": "agent.blocks"})
    assert shown.json()["blocks"] == []
    text = (await client.get(f"/v1/agents/{agent}/messages")).json()[0]["content"]
    assert "Secretive" not in text
    assert "likes tea" not in text
