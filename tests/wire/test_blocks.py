"""Memory blocks (wire-v1 §2.4, §2.6, §3.3, §7.1)."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from letta_client import ConflictError, Letta, NotFoundError, UnprocessableEntityError
from letta_client.types import BlockResponse
from tests.support.client_objects import as_dict, as_dicts

from holdfast.testing import ScriptedProvider

if TYPE_CHECKING:
    from tests.support.wire_server import MakeAgent

pytestmark = pytest.mark.slow

MakeBlock = Callable[..., BlockResponse]


@pytest.fixture
def make_block(client: Letta) -> Iterator[MakeBlock]:
    made: list[str] = []

    def make(**fields: Any) -> BlockResponse:
        block = client.blocks.create(**{"label": "notes", "value": "Nothing."} | fields)
        made.append(block.id)
        return block

    yield make
    for block_id in made:
        with suppress(NotFoundError):
            client.blocks.delete(block_id)


def system_message(client: Letta, agent_id: str) -> dict[str, Any]:
    return as_dicts(client.agents.messages.list(agent_id, order="asc", limit=1).items)[0]


def test_a_block_is_made_read_changed_and_deleted(client: Letta, make_block: MakeBlock) -> None:
    block = make_block(value="One.", description="A note.", limit=500, tags=["a"], read_only=True)

    assert (block.label, block.value, block.limit) == ("notes", "One.", 500)
    assert (block.description, block.read_only) == ("A note.", True)
    assert as_dict(client.blocks.retrieve(block.id)) == as_dict(block)
    changed = client.blocks.update(block.id, value="Two.")
    assert (changed.id, changed.value, changed.description) == (block.id, "Two.", "A note.")
    client.blocks.delete(block.id)
    with pytest.raises(NotFoundError):
        client.blocks.retrieve(block.id)
    with pytest.raises(NotFoundError):
        client.blocks.delete(block.id)


def test_blocks_are_listed_by_each_filter(
    client: Letta, make_agent: "MakeAgent", make_block: MakeBlock
) -> None:
    mark = uuid4().hex
    one = make_block(label=f"one/{mark[:8]}", value=f"{mark} eins", tags=[mark, "red"])
    two = make_block(label=f"two/{mark[:8]}", value=f"{mark} zwei", tags=[mark], description=mark)
    make_agent(block_ids=[two.id])

    def list_ids(**query: Any) -> list[str]:
        return [block.id for block in client.blocks.list(**query).items]

    assert list_ids(value_search=mark) == [one.id, two.id]
    assert list_ids(value_search=mark, order="desc") == [two.id, one.id]
    assert list_ids(label=one.label) == [one.id]
    assert list_ids(label_search=mark[:8]) == [one.id, two.id]
    assert list_ids(description_search=mark) == [two.id]
    assert list_ids(tags=[mark]) == [one.id, two.id]
    assert list_ids(tags=[mark, "red"], match_all_tags=True) == [one.id]
    assert list_ids(value_search=mark, connected_to_agents_count_gt=0) == [two.id]
    assert list_ids(value_search=mark, connected_to_agents_count_eq=[0]) == [one.id]
    assert list_ids(value_search=mark, limit=1) == [one.id]
    assert list_ids(value_search=mark, after=one.id) == [two.id]
    assert list_ids(value_search=mark, before=two.id) == [one.id]


def test_an_agents_block_is_found_by_its_label_with_slashes_too(
    client: Letta, make_agent: "MakeAgent"
) -> None:
    agent = make_agent(memory_blocks=[{"label": "work/today", "value": "Tests."}])

    assert client.agents.blocks.retrieve("work/today", agent_id=agent.id).value == "Tests."
    changed = client.agents.blocks.update("work/today", agent_id=agent.id, value="More tests.")
    assert changed.value == "More tests."
    with pytest.raises(NotFoundError) as caught:
        client.agents.blocks.retrieve("work", agent_id=agent.id)
    expected = f"No block with label 'work' found for agent '{agent.id}'"
    assert caught.value.response.json() == {"detail": expected}


def test_a_block_is_attached_and_detached(
    client: Letta, make_agent: "MakeAgent", make_block: MakeBlock
) -> None:
    agent, block = make_agent(), make_block(value="Shared.")

    for _ in range(2):
        state = client.agents.blocks.attach(block.id, agent_id=agent.id)
        assert [item.id for item in state.blocks] == [block.id]
    assert [item.id for item in client.agents.blocks.list(agent.id).items] == [block.id]
    assert [item.id for item in client.blocks.agents.list(block.id).items] == [agent.id]
    state = client.agents.blocks.detach(block.id, agent_id=agent.id)
    assert state.blocks == []
    with pytest.raises(NotFoundError):
        client.agents.blocks.detach(block.id, agent_id=agent.id)
    assert client.blocks.retrieve(block.id).value == "Shared."


def test_editing_a_block_rewrites_the_system_message_of_all_its_agents_in_place(
    client: Letta, provider: ScriptedProvider, make_agent: "MakeAgent", make_block: MakeBlock
) -> None:
    block = make_block(value="The old way.")
    agents = [make_agent(block_ids=[block.id]) for _ in range(2)]
    before = [system_message(client, agent.id) for agent in agents]
    assert all("The old way." in message["content"] for message in before)

    client.blocks.update(block.id, value="The new way.")

    for agent, old in zip(agents, before, strict=True):
        new = system_message(client, agent.id)
        assert new["id"] == old["id"]
        assert "The new way." in new["content"]
        assert "The old way." not in new["content"]
    client.agents.messages.create(agents[0].id, input="Which way?")
    assert "The new way." in str(provider.requests[-1].body)
    client.agents.blocks.update("notes", agent_id=agents[1].id, value="The third way.")
    assert "The third way." in system_message(client, agents[0].id)["content"]


def test_two_blocks_of_one_agent_do_not_share_a_label(
    client: Letta, make_agent: "MakeAgent", make_block: MakeBlock
) -> None:
    agent = make_agent(memory_blocks=[{"label": "notes", "value": "Mine."}])
    other = make_block(label="notes", value="Another.")

    with pytest.raises(ConflictError) as caught:
        client.agents.blocks.attach(other.id, agent_id=agent.id)

    assert caught.value.response.headers["x-should-retry"] == "false"
    assert client.agents.blocks.retrieve("notes", agent_id=agent.id).value == "Mine."


def test_a_value_longer_than_its_limit_is_refused(client: Letta, make_block: MakeBlock) -> None:
    block = make_block(value="Short.", limit=10)

    with pytest.raises(UnprocessableEntityError):
        client.blocks.update(block.id, value="Much too long for this.")

    assert client.blocks.retrieve(block.id).value == "Short."
