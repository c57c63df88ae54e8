"""The SDK pages by itself through every list, to its end and without seeing anything twice (wire-v1 §1.10)."""

from collections.abc import Callable, Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from letta_client import Letta
from tests.support.client_objects import as_dict
from tests.support.tool_sources import ADD

if TYPE_CHECKING:
    from tests.support.wire_server import MakeAgent, MakeTool

pytestmark = pytest.mark.slow

COUNT = 5
# A bound for lists that would not end.
FAR_TOO_MANY = 50

Lists = dict[str, Callable[..., Iterable[Any]]]


@pytest.fixture
def lists(client: Letta, make_agent: "MakeAgent", make_tool: "MakeTool") -> Lists:
    """Lists with five items each."""
    mark = f"p{uuid4().hex[:12]}"
    tools = [make_tool(ADD.replace("def add", f"def {mark}_{number}")) for number in range(COUNT)]
    agents = [make_agent(tags=[mark]) for _ in range(COUNT)]
    shared = client.blocks.create(label="shared", value=mark)
    for agent in agents:
        client.agents.blocks.attach(shared.id, agent_id=agent.id)
    busy = make_agent(
        tool_ids=[tool.id for tool in tools],
        memory_blocks=[{"label": f"note_{number}", "value": mark} for number in range(COUNT - 1)],
        block_ids=[shared.id],
    )
    for _ in range(COUNT):
        client.agents.messages.create(busy.id, input="Go")
    return {
        "agents": lambda **page: client.agents.list(tags=[mark], **page),
        "tools": lambda **page: client.tools.list(search=mark, **page),
        "blocks": lambda **page: client.blocks.list(value_search=mark, **page),
        "runs": lambda **page: client.runs.list(agent_id=busy.id, **page),
        "steps": lambda **page: client.steps.list(agent_id=busy.id, **page),
        "agent tools": lambda **page: client.agents.tools.list(busy.id, **page),
        "agent blocks": lambda **page: client.agents.blocks.list(busy.id, **page),
        "agents of a block": lambda **page: client.blocks.agents.list(shared.id, **page),
    }


EXPECTED = {"agents of a block": COUNT + 1}


def ids(found: Iterable[Any]) -> list[str]:
    return [item.id for item in islice(found, FAR_TOO_MANY)]


def test_every_list_ends_and_repeats_nothing_in_both_directions(lists: Lists) -> None:
    for name, listing in lists.items():
        everything = ids(listing())
        assert len(everything) == EXPECTED.get(name, COUNT), name
        assert len(set(everything)) == len(everything), name
        for order in ("asc", "desc"):
            whole = ids(listing(order=order))
            assert sorted(whole) == sorted(everything), (name, order)
            assert ids(listing(order=order, limit=2)) == whole, (name, order)
            assert ids(listing(order=order, limit=1, after=whole[0])) == whole[1:], (name, order)
            # Backwards the SDK asks for what is before the first item that it has.
            seen = ids(listing(order=order, limit=1, before=whole[-1]))
            assert sorted(seen) == sorted(whole[:-1]), (name, order)


def test_the_orders_are_each_others_reverse(lists: Lists) -> None:
    for name, listing in lists.items():
        assert ids(listing(order="asc")) == ids(listing(order="desc"))[::-1], name


def test_the_messages_of_a_run_are_paged_from_the_oldest(
    client: Letta, make_agent: "MakeAgent"
) -> None:
    agent = make_agent()
    client.agents.messages.create(agent.id, input="Go")
    (run,) = client.runs.list(agent_id=agent.id).items

    whole = [row.id for row in client.runs.messages.list(run.id).items]

    # The history is different: `after` means newer in either order.
    assert ids(client.runs.messages.list(run.id, limit=1)) == whole
    assert len(set(whole)) == len(whole) == 2


def test_tags_are_paged_by_name(client: Letta, make_agent: "MakeAgent") -> None:
    mark = uuid4().hex
    tags = [f"{mark} {letter}" for letter in "abcde"]
    make_agent(tags=tags[:3])
    tagged = client.blocks.create(label="tagged", value="", tags=tags[2:])

    assert client.tags.list(query_text=mark) == tags
    assert client.tags.list(query_text=mark, limit=2, after=tags[1]) == tags[2:4]
    assert client.tags.list(query_text=mark, before=tags[2]) == tags[:2]
    assert client.tags.list(query_text=mark, order="desc") == tags[::-1]
    assert client.tags.list(name=tags[0]) == tags[:1]
    client.blocks.delete(tagged.id)


def test_models_are_listed_by_provider(client: Letta) -> None:
    models = [as_dict(model) for model in client.models.list()]

    handles = {model["handle"]: model for model in models}
    # The models that the scripted provider lists.
    assert {"openai/scripted-model", "anthropic/scripted-model", "holdfast/guide"} <= set(handles)
    scripted = handles["openai/scripted-model"]
    assert scripted["name"] == scripted["model"] == "scripted-model"
    assert scripted["provider_type"] == "openai"
    assert scripted["max_context_window"] == 128_000
    assert scripted["model_type"] == "llm"
    only = client.models.list(provider_name="anthropic")
    assert {as_dict(model)["provider_type"] for model in only} == {"anthropic"}
    assert client.models.list(provider_category=["byok"]) == []
    embeddings = {as_dict(model)["handle"] for model in client.models.embeddings.list()}
    assert "openai/text-embedding-3-small" in embeddings
