"""Identities of agents and blocks (tools-v1 §2). The official client can only attach and detach them; the rest of the
family is plain HTTP."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import httpx
import pytest
from letta_client import Letta, NotFoundError, UnprocessableEntityError

if TYPE_CHECKING:
    from tests.support.wire_server import MakeAgent

pytestmark = [pytest.mark.slow, pytest.mark.both_databases]

UNKNOWN_IDENTITY = "identity-99999999-9999-4999-8999-999999999999"
UNKNOWN_AGENT = "agent-99999999-9999-4999-8999-999999999999"

Identity = dict[str, Any]
MakeIdentity = Callable[..., Identity]


@pytest.fixture
def make_identity(http: httpx.Client) -> Iterator[MakeIdentity]:
    """Makes identities, each with a key of its own; they are deleted at the end."""
    made: list[str] = []

    def make(**fields: Any) -> Identity:
        body = {"identifier_key": uuid4().hex, "name": "Maria", "identity_type": "user"} | fields
        answer = http.post("/v1/identities/", json=body)
        assert answer.status_code == 200, answer.text
        identity: Identity = answer.json()
        made.append(identity["id"])
        return identity

    yield make
    for identity_id in made:
        http.delete(f"/v1/identities/{identity_id}")


@pytest.fixture
def make_block(client: Letta) -> Iterator[Callable[[], str]]:
    made: list[str] = []

    def make() -> str:
        made.append(client.blocks.create(label="notes", value="likes tea").id)
        return made[-1]

    yield make
    for block_id in made:
        client.blocks.delete(block_id)


def listed(client: Letta, **query: Any) -> list[str]:
    return [agent.id for agent in client.agents.list(**query).items]


def ids(answer: httpx.Response) -> list[str]:
    assert answer.status_code == 200, answer.text
    return [item["id"] for item in answer.json()]


@pytest.mark.tools(27)
def test_attaching_and_detaching_twice_is_no_error(
    client: Letta, http: httpx.Client, make_agent: "MakeAgent", make_identity: MakeIdentity
) -> None:
    agent, identity = make_agent(), make_identity()
    path = f"/v1/identities/{identity['id']}"

    for _ in range(2):
        assert client.agents.identities.attach(identity["id"], agent_id=agent.id) is None
    shown = client.agents.retrieve(agent.id, include=["agent.identities"])
    assert [item.id for item in shown.identities or ()] == [identity["id"]]
    assert shown.identity_ids == [identity["id"]]
    assert client.agents.retrieve(agent.id).identities == []
    assert http.get(path).json()["agent_ids"] == [agent.id]
    assert ids(http.get(f"{path}/agents")) == [agent.id]
    for _ in range(2):
        assert client.agents.identities.detach(identity["id"], agent_id=agent.id) is None
    shown = client.agents.retrieve(agent.id, include=["agent.identities"])
    assert (shown.identities, shown.identity_ids) == ([], [])
    assert http.get(path).json()["agent_ids"] == []


def test_attaching_needs_an_agent_and_an_identity(
    client: Letta, make_agent: "MakeAgent", make_identity: MakeIdentity
) -> None:
    agent, identity = make_agent(), make_identity()

    for change in (client.agents.identities.attach, client.agents.identities.detach):
        with pytest.raises(NotFoundError, match=f"Identity not found with id='{UNKNOWN_IDENTITY}'"):
            change(UNKNOWN_IDENTITY, agent_id=agent.id)
        with pytest.raises(NotFoundError):
            change(identity["id"], agent_id=UNKNOWN_AGENT)
        with pytest.raises(UnprocessableEntityError):
            change("nope", agent_id=agent.id)


@pytest.mark.tools(28)
def test_an_agent_with_both_keys_is_listed_once_and_the_filters_combine(
    client: Letta, make_agent: "MakeAgent", make_identity: MakeIdentity
) -> None:
    a, b = make_identity(), make_identity()
    both = make_agent(identity_ids=[a["id"], b["id"]])
    second = make_agent(identity_ids=[b["id"]])
    keys = [a["identifier_key"], b["identifier_key"]]

    assert listed(client, identifier_keys=keys) == [second.id, both.id]
    assert listed(client, identifier_keys=keys, order="asc") == [both.id, second.id]
    assert listed(client, identifier_keys=keys, limit=1, after=second.id) == [both.id]
    assert listed(client, identity_id=b["id"]) == [second.id, both.id]
    assert listed(client, identity_id=b["id"], identifier_keys=keys[:1]) == [both.id]
    assert listed(client, identity_id=UNKNOWN_IDENTITY, identifier_keys=keys) == []
    assert [agent.id for agent in client.agents.list(identifier_keys=keys, limit=1)] == [
        second.id,
        both.id,
    ]


@pytest.mark.tools(29)
def test_a_key_is_taken_once_and_put_creates_or_replaces(
    http: httpx.Client, make_identity: MakeIdentity
) -> None:
    taken = make_identity()
    body = {name: taken[name] for name in ("identifier_key", "name", "identity_type")}

    refused = http.post("/v1/identities/", json=body)
    assert refused.status_code == 409
    assert refused.headers["x-should-retry"] == "false"
    # The same key in a project is another one.
    make_identity(**body, project_id="p")
    properties = [{"key": "tea", "value": True, "type": "boolean"}]
    replaced = http.put("/v1/identities/", json=body | {"properties": properties}).json()
    assert replaced == taken | {"properties": properties}
    new = body | {"identifier_key": uuid4().hex}
    created = http.put("/v1/identities/", json=new).json()
    assert (created["identifier_key"], created["properties"]) == (new["identifier_key"], [])
    replaced = http.put("/v1/identities/", json=new | {"properties": properties}).json()
    assert replaced == created | {"properties": properties}
    assert http.delete(f"/v1/identities/{created['id']}").json() is None


@pytest.mark.tools(30)
def test_patch_merges_properties_and_put_replaces_them(
    http: httpx.Client, make_identity: MakeIdentity
) -> None:
    def prop(key: str, value: int) -> dict[str, Any]:
        return {"key": key, "value": value, "type": "number"}

    identity = make_identity(properties=[prop("a", 1), prop("b", 2)])
    path = f"/v1/identities/{identity['id']}"

    merged = http.patch(path, json={"properties": [prop("c", 3), prop("a", 4)]}).json()
    assert merged["properties"] == [prop("a", 4), prop("b", 2), prop("c", 3)]
    replaced = http.put(f"{path}/properties", json=[prop("z", 0)]).json()
    assert replaced == identity | {"properties": [prop("z", 0)]}
    assert http.get(path).json() == replaced


@pytest.mark.tools(31)
def test_an_agent_is_created_and_updated_with_identities(
    client: Letta, make_agent: "MakeAgent", make_identity: MakeIdentity
) -> None:
    one, two = make_identity(), make_identity()

    agent = make_agent(identity_ids=[one["id"]])
    assert agent.identity_ids == [one["id"]]
    assert agent.identities is not None
    (shown,) = agent.identities
    assert (shown.identifier_key, shown.agent_ids) == (one["identifier_key"], [agent.id])
    assert client.agents.update(agent.id, identity_ids=[two["id"]]).identity_ids == [two["id"]]
    assert client.agents.update(agent.id, name="renamed").identity_ids == [two["id"]]
    assert client.agents.update(agent.id, identity_ids=[]).identity_ids == []
    with pytest.raises(NotFoundError, match=UNKNOWN_IDENTITY):
        client.agents.update(agent.id, identity_ids=[one["id"], UNKNOWN_IDENTITY])
    with pytest.raises(NotFoundError, match=UNKNOWN_IDENTITY):
        make_agent(identity_ids=[UNKNOWN_IDENTITY])
    assert client.agents.retrieve(agent.id, include=["agent.identities"]).identity_ids == []


@pytest.mark.tools(32)
def test_blocks_of_an_identity_are_found_and_not_given_to_its_agents(
    client: Letta,
    http: httpx.Client,
    make_agent: "MakeAgent",
    make_identity: MakeIdentity,
    make_block: Callable[[], str],
) -> None:
    older, newer = make_block(), make_block()
    identity, other = make_identity(block_ids=[older]), make_identity()
    agent = make_agent(identity_ids=[identity["id"]])
    for identity_id in (identity["id"], other["id"]):
        answer = http.patch(f"/v1/blocks/{newer}/identities/attach/{identity_id}")
        assert answer.json()["id"] == newer

    assert client.agents.blocks.list(agent.id).items == []
    keys = [identity["identifier_key"], other["identifier_key"]]
    for query in ({"identity_id": identity["id"]}, {"identifier_keys": keys}):
        # The oldest comes first, as in every list of blocks.
        assert [block.id for block in client.blocks.list(**query)] == [older, newer]
    found = client.blocks.list(identity_id=other["id"], identifier_keys=keys[:1])
    assert [block.id for block in found] == [newer]
    assert ids(http.get(f"/v1/identities/{identity['id']}/blocks")) == [newer, older]
    http.patch(f"/v1/blocks/{newer}/identities/detach/{identity['id']}")
    assert http.get(f"/v1/identities/{identity['id']}").json()["block_ids"] == [older]


def test_a_deleted_identity_is_gone_everywhere(
    client: Letta, http: httpx.Client, make_agent: "MakeAgent", make_identity: MakeIdentity
) -> None:
    identity = make_identity()
    agent = make_agent(identity_ids=[identity["id"]])
    before = http.get("/v1/identities/count").json()

    answer = http.delete(f"/v1/identities/{identity['id']}")

    assert (answer.status_code, answer.json()) == (200, None)
    assert http.get("/v1/identities/count").json() == before - 1
    assert http.get(f"/v1/identities/{identity['id']}").status_code == 404
    assert client.agents.retrieve(agent.id, include=["agent.identities"]).identities == []
    assert listed(client, identifier_keys=[identity["identifier_key"]]) == []
