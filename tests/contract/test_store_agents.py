"""Agents, tools and blocks, and the links between them."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec
import pytest
from tests.support.values import Make, moment

from holdfast.core.agents import Agent, AgentQuery, Secret
from holdfast.core.blocks import Block, BlockQuery
from holdfast.core.ids import DEFAULT_ORGANIZATION_ID
from holdfast.core.paging import Order, Page
from holdfast.core.tool_rules import ConstrainChildTools, RunFirst
from holdfast.core.tools import Tool, ToolKind, ToolQuery
from holdfast.errors import AlreadyExists, InvalidArgument, NotFound
from holdfast.ports.store import Store, Transaction

ORG = DEFAULT_ORGANIZATION_ID
ALL = Page(limit=50, order=Order.ASC)


async def add(store: Store, *values: Agent | Tool | Block) -> None:
    def work(tx: Transaction) -> None:
        for value in values:
            match value:
                case Agent():
                    tx.agents.add(value)
                case Tool():
                    tx.tools.add(value)
                case Block():
                    tx.blocks.add(value)

    await store.write(work)


async def agents(store: Store, **query: Any) -> list[str]:
    asked = AgentQuery(page=ALL, **query)
    found = await store.read(lambda tx: tx.agents.list(ORG, asked))
    assert await store.read(lambda tx: tx.agents.count(ORG, asked)) == len(found)
    return [agent.id for agent in found]


async def tools(store: Store, **query: Any) -> list[str]:
    asked = ToolQuery(page=ALL, **query)
    found = await store.read(lambda tx: tx.tools.list(ORG, asked))
    assert await store.read(lambda tx: tx.tools.count(ORG, asked)) == len(found)
    return [tool.id for tool in found]


async def blocks(store: Store, **query: Any) -> list[str]:
    asked = BlockQuery(page=ALL, **query)
    found = await store.read(lambda tx: tx.blocks.list(ORG, asked))
    assert await store.read(lambda tx: tx.blocks.count(ORG, asked)) == len(found)
    return [block.id for block in found]


async def test_another_organisations_objects_are_not_found(any_store: Store, make: Make) -> None:
    agent, tool, block = make.agent(), make.tool(), make.block()
    await add(any_store, agent, tool, block)
    with pytest.raises(NotFound, match=f"Agent with ID {agent.id} not found"):
        await any_store.read(lambda tx: tx.agents.get("org-x", agent.id))
    with pytest.raises(NotFound, match=f"Tool with ID {tool.id} not found"):
        await any_store.read(lambda tx: tx.tools.get("org-x", tool.id))
    with pytest.raises(NotFound, match=f"Block with ID {block.id} not found"):
        await any_store.read(lambda tx: tx.blocks.get("org-x", block.id))
    for delete in (
        lambda tx: tx.agents.delete("org-x", agent.id),
        lambda tx: tx.tools.delete("org-x", tool.id),
        lambda tx: tx.blocks.delete("org-x", block.id),
        lambda tx: tx.agents.save(msgspec.structs.replace(agent, organization_id="org-x")),
        lambda tx: tx.tools.save(msgspec.structs.replace(tool, organization_id="org-x")),
        lambda tx: tx.blocks.save(msgspec.structs.replace(block, organization_id="org-x")),
    ):
        with pytest.raises(NotFound):
            await any_store.write(delete)
    assert await any_store.read(lambda tx: tx.agents.list("org-x", AgentQuery(page=ALL))) == []
    assert await any_store.read(lambda tx: tx.tools.list("org-x", ToolQuery(page=ALL))) == []
    assert await any_store.read(lambda tx: tx.blocks.list("org-x", BlockQuery(page=ALL))) == []


async def test_saving_replaces_the_whole_agent_but_its_last_run(
    any_store: Store, make: Make
) -> None:
    agent = make.agent()
    await add(any_store, agent)
    changed = make.agent(
        id=agent.id,
        name="new",
        description="d",
        tool_rules=(
            RunFirst(tool_name="a"),
            ConstrainChildTools(tool_name="a", children=("b",)),
        ),
        hidden=True,
        last_stop_reason="not mine to say",
    )

    def work(tx: Transaction) -> None:
        tx.agents.set_last_run(
            agent.id, stop_reason="end_turn", completed_at=moment(5), duration_ms=12
        )
        tx.agents.save(changed)

    await any_store.write(work)
    assert await any_store.read(lambda tx: tx.agents.get(ORG, agent.id)) == msgspec.structs.replace(
        changed,
        last_stop_reason="end_turn",
        last_run_completion=moment(5),
        last_run_duration_ms=12,
    )


async def test_agents_are_found_by_each_condition(any_store: Store, make: Make) -> None:
    plain = make.agent(name="100% Wool")
    other = make.agent(
        name="Ärger_2",
        created_by_id="user-1",
        project_id="p",
        template_id="t",
        base_template_id="b",
    )
    hidden = make.agent(name="secret", hidden=True)
    block = make.block()
    await add(any_store, plain, other, hidden, block)

    def tie(tx: Transaction) -> None:
        tx.agents.set_tags(plain.id, ["x", "y"])
        tx.agents.set_tags(other.id, ["y", "z", "y"])
        tx.agents.attach_blocks(other.id, [block.id])
        tx.agents.set_last_run(other.id, stop_reason="error", completed_at=moment(1), duration_ms=1)

    await any_store.write(tie)
    assert await agents(any_store) == [plain.id, other.id]
    assert await agents(any_store, show_hidden=True) == [plain.id, other.id, hidden.id]
    assert await agents(any_store, name="100% Wool") == [plain.id]
    assert await agents(any_store, query_text="% wOO") == [plain.id]
    assert await agents(any_store, query_text="%") == [plain.id]
    assert await agents(any_store, query_text="_") == [other.id]
    assert await agents(any_store, query_text="ärger") == [other.id]
    assert await agents(any_store, tags=("x", "z")) == [plain.id, other.id]
    assert await agents(any_store, tags=("y", "z"), match_all_tags=True) == [other.id]
    assert await agents(any_store, last_stop_reason="error") == [other.id]
    assert await agents(any_store, created_by_id="user-1") == [other.id]
    assert await agents(any_store, project_id="p") == [other.id]
    assert await agents(any_store, template_id="t") == [other.id]
    assert await agents(any_store, base_template_id="b") == [other.id]
    assert await agents(any_store, block_id=block.id) == [other.id]
    assert await agents(any_store, identity_id="identity-1") == []
    assert await agents(any_store, identifier_keys=("k",)) == []
    assert await agents(any_store, name="100% Wool", project_id="p") == []


async def test_tags_are_replaced_and_sorted(any_store: Store, make: Make) -> None:
    one, two = make.agent(), make.agent()
    await add(any_store, one, two)
    await any_store.write(lambda tx: tx.agents.set_tags(one.id, ["b", "B", "a", "a"]))
    ids = [one.id, two.id]
    assert await any_store.read(lambda tx: tx.agents.tags(ids)) == {one.id: ["B", "a", "b"]}
    await any_store.write(lambda tx: tx.agents.set_tags(one.id, []))
    assert await any_store.read(lambda tx: tx.agents.tags(ids)) == {}
    with pytest.raises(InvalidArgument):
        await any_store.write(lambda tx: tx.agents.set_tags(one.id, ["\x00"]))
    with pytest.raises(NotFound):
        await any_store.write(lambda tx: tx.agents.set_tags("agent-none", ["a"]))


async def test_all_tags_are_those_of_agents_and_blocks(any_store: Store, make: Make) -> None:
    agent = make.agent()
    stranger = make.agent(organization_id="org-x")
    await add(any_store, agent, stranger, make.block(tags=("m", "a")), make.tool(tags=("t",)))

    def tag(tx: Transaction) -> None:
        tx.agents.set_tags(agent.id, ["z", "a"])
        tx.agents.set_tags(stranger.id, ["theirs"])

    await any_store.write(tag)
    assert await any_store.read(lambda tx: tx.agents.all_tags(ORG)) == ["a", "m", "z"]


async def test_tools_keep_the_order_of_attachment(any_store: Store, make: Make) -> None:
    agent, bare = make.agent(), make.agent()
    first, second, third = (make.tool() for _ in range(3))
    await add(any_store, agent, bare, first, second, third)

    def attach(tx: Transaction) -> None:
        tx.agents.attach_tools(agent.id, [third.id, first.id])
        tx.agents.attach_tools(agent.id, [second.id, third.id])

    await any_store.write(attach)
    found = await any_store.read(lambda tx: tx.agents.tools([agent.id, bare.id]))
    assert found == {agent.id: [third, first, second], bare.id: []}
    await any_store.write(lambda tx: tx.agents.detach_tools(agent.id, [third.id]))
    await any_store.write(lambda tx: tx.agents.attach_tools(agent.id, [third.id]))
    found = await any_store.read(lambda tx: tx.agents.tools([agent.id]))
    assert found[agent.id] == [first, second, third]
    await any_store.write(lambda tx: tx.tools.delete(ORG, first.id))
    found = await any_store.read(lambda tx: tx.agents.tools([agent.id]))
    assert found[agent.id] == [second, third]
    with pytest.raises(NotFound):
        await any_store.write(lambda tx: tx.agents.attach_tools(agent.id, ["tool-none"]))


async def test_blocks_keep_the_order_of_attachment(any_store: Store, make: Make) -> None:
    agent, other = make.agent(), make.agent()
    human, persona = make.block(label="human"), make.block(label="persona")
    await add(any_store, agent, other, human, persona)

    def attach(tx: Transaction) -> None:
        tx.agents.attach_blocks(agent.id, [persona.id])
        tx.agents.attach_blocks(agent.id, [human.id])
        tx.agents.attach_blocks(agent.id, [persona.id])
        tx.agents.attach_blocks(other.id, [human.id])

    await any_store.write(attach)
    found = await any_store.read(lambda tx: tx.agents.blocks([agent.id, other.id]))
    assert found == {agent.id: [persona, human], other.id: [human]}
    holders = await any_store.read(lambda tx: tx.blocks.holder_ids(human.id))
    assert holders == sorted([agent.id, other.id])
    assert await any_store.write(lambda tx: tx.agents.detach_blocks(agent.id, [persona.id]))
    assert not await any_store.write(lambda tx: tx.agents.detach_blocks(agent.id, [persona.id]))
    await any_store.write(lambda tx: tx.blocks.delete(ORG, human.id))
    found = await any_store.read(lambda tx: tx.agents.blocks([agent.id, other.id]))
    assert found == {agent.id: [], other.id: []}
    with pytest.raises(NotFound, match="Block with ID block-none not found"):
        await any_store.write(lambda tx: tx.agents.attach_blocks(agent.id, ["block-none"]))


async def test_an_agent_has_one_block_of_a_label(any_store: Store, make: Make) -> None:
    agent = make.agent()
    one, same, other = make.block(label="a"), make.block(label="a"), make.block(label="b")
    await add(any_store, agent, one, same, other)
    await any_store.write(lambda tx: tx.agents.attach_blocks(agent.id, [one.id]))
    await any_store.write(lambda tx: tx.agents.attach_blocks(agent.id, [other.id]))
    with pytest.raises(AlreadyExists):
        await any_store.write(lambda tx: tx.agents.attach_blocks(agent.id, [same.id]))


async def test_two_blocks_of_a_label_are_not_attached_together(
    any_store: Store, make: Make
) -> None:
    agent = make.agent()
    one, same = make.block(label="a"), make.block(label="a")
    await add(any_store, agent, one, same)
    with pytest.raises(AlreadyExists):
        await any_store.write(lambda tx: tx.agents.attach_blocks(agent.id, [one.id, same.id]))
    assert await any_store.read(lambda tx: tx.agents.blocks([agent.id])) == {agent.id: []}


async def test_blocks_are_found_in_the_order_of_their_ids(any_store: Store, make: Make) -> None:
    one, other = make.block(), make.block()
    await any_store.write(lambda tx: tx.blocks.add(one, other))
    assert await any_store.read(lambda tx: tx.blocks.find(ORG, [other.id, one.id])) == [other, one]
    with pytest.raises(NotFound, match="Block with ID block-none not found"):
        await any_store.read(lambda tx: tx.blocks.find(ORG, [one.id, "block-none"]))
    with pytest.raises(NotFound):
        await any_store.read(lambda tx: tx.blocks.find("org-x", [one.id]))


async def test_a_new_label_must_be_unused_by_every_agent_with_the_block(
    any_store: Store, make: Make
) -> None:
    agent = make.agent()
    one, other = make.block(label="a"), make.block(label="b")
    await add(any_store, agent, one, other)
    await any_store.write(lambda tx: tx.agents.attach_blocks(agent.id, [one.id]))
    await any_store.write(lambda tx: tx.agents.attach_blocks(agent.id, [other.id]))
    with pytest.raises(AlreadyExists):
        await any_store.write(lambda tx: tx.blocks.save(msgspec.structs.replace(other, label="a")))
    await any_store.write(lambda tx: tx.blocks.save(msgspec.structs.replace(one, label="c")))
    # The label "a" is free now.
    await any_store.write(lambda tx: tx.blocks.save(msgspec.structs.replace(other, label="a")))
    found = await any_store.read(lambda tx: tx.agents.blocks([agent.id]))
    assert [block.label for block in found[agent.id]] == ["c", "a"]


async def test_secrets_are_replaced_as_a_whole(any_store: Store, make: Make) -> None:
    agent, bare = make.agent(), make.agent()
    await add(any_store, agent, bare)
    old = [Secret(id=f"agent-env-{key}", key=key, value=key * 3) for key in "ba"]
    new = [Secret(id="agent-env-c", key="c", value="\x00 ünïcode", description="d")]
    await any_store.write(lambda tx: tx.agents.set_secrets(agent.id, old))
    found = await any_store.read(lambda tx: tx.agents.secrets([agent.id, bare.id]))
    assert found == {agent.id: old, bare.id: []}
    await any_store.write(lambda tx: tx.agents.set_secrets(agent.id, new))
    found = await any_store.read(lambda tx: tx.agents.secrets([agent.id]))
    assert found[agent.id] == new


async def test_a_tools_name_is_unique_in_its_organisation(any_store: Store, make: Make) -> None:
    tool, other = make.tool(name="roll"), make.tool(name="flip")
    await add(any_store, tool, other, make.tool(name="roll", organization_id="org-x"))
    with pytest.raises(AlreadyExists):
        await add(any_store, make.tool(name="roll"))
    with pytest.raises(AlreadyExists):
        await any_store.write(lambda tx: tx.tools.save(msgspec.structs.replace(other, name="roll")))


async def test_tools_are_found_by_each_condition(any_store: Store, make: Make) -> None:
    roll = make.tool(name="roll_dice")
    flip = make.tool(name="flipXcoin", kind=ToolKind.MCP)
    ours = make.tool(name="core_memory", kind=ToolKind.MEMORY)
    agent = make.agent()
    await add(any_store, roll, flip, ours, agent)
    await any_store.write(lambda tx: tx.agents.attach_tools(agent.id, [flip.id]))
    assert await tools(any_store, name="roll_dice") == [roll.id]
    assert await tools(any_store, names=("roll_dice", "core_memory", "?")) == [roll.id, ours.id]
    assert await tools(any_store, tool_ids=(flip.id,)) == [flip.id]
    assert await tools(any_store, search="L_D") == [roll.id]
    assert await tools(any_store, kinds=("custom", "no_such_kind")) == [roll.id]
    assert await tools(any_store, excluded_kinds=("custom", "external_mcp")) == [ours.id]
    assert await tools(any_store, only_builtin=True) == [ours.id]
    assert await tools(any_store, agent_id=agent.id) == [flip.id]
    found = await any_store.read(lambda tx: tx.tools.find(ORG, ["flipXcoin", "unknown"]))
    assert found == [flip]


async def test_blocks_are_found_by_each_condition(any_store: Store, make: Make) -> None:
    one = make.block(label="human/x", value="Likes 50% tea", tags=("t", "u"), description="Who?")
    two = make.block(label="persona", is_template=True, template_name="n", project_id="p")
    agent = make.agent()
    await add(any_store, one, two, agent)
    await any_store.write(lambda tx: tx.agents.attach_blocks(agent.id, [two.id]))
    assert await blocks(any_store, label="persona") == [two.id]
    assert await blocks(any_store, name="n") == [two.id]
    assert await blocks(any_store, label_search="MAN/") == [one.id]
    assert await blocks(any_store, description_search="who") == [one.id]
    assert await blocks(any_store, value_search="50% T") == [one.id]
    assert await blocks(any_store, value_search="5_%") == []
    assert await blocks(any_store, tags=("u", "v")) == [one.id]
    assert await blocks(any_store, tags=("u", "v"), match_all_tags=True) == []
    assert await blocks(any_store, templates_only=True) == [two.id]
    assert await blocks(any_store, project_id="p") == [two.id]
    assert await blocks(any_store, agent_id=agent.id) == [two.id]
    assert await blocks(any_store, connected_gt=0) == [two.id]
    assert await blocks(any_store, connected_lt=1) == [one.id]
    assert await blocks(any_store, connected_eq=0) == [one.id]


async def test_a_saved_block_is_found_by_its_new_tags(any_store: Store, make: Make) -> None:
    block = make.block(tags=("old",))
    await add(any_store, block)
    changed = msgspec.structs.replace(block, tags=("new", "new"), value="v")
    await any_store.write(lambda tx: tx.blocks.save(changed))
    assert await blocks(any_store, tags=("old",)) == []
    assert await blocks(any_store, tags=("new",)) == [block.id]
    assert await any_store.read(lambda tx: tx.blocks.get(ORG, block.id)) == changed


async def test_nul_is_stripped_from_a_blocks_value(any_store: Store, make: Make) -> None:
    """wire-v1 §1.7."""
    block = make.block(value="a\x00b")
    await add(any_store, block)
    assert (await any_store.read(lambda tx: tx.blocks.get(ORG, block.id))).value == "ab"


def _holders(tx: Transaction, block_id: str) -> Sequence[str]:
    return tx.blocks.holder_ids(block_id)


async def test_a_conversation_has_its_own_blocks_and_they_are_deleted_with_it(
    any_store: Store, make: Make
) -> None:
    agent = make.agent()
    one, two = make.thread(agent, id="conv-1"), make.thread(agent, id="conv-2")
    first, second = (make.block(label=label, thread_id=one.id) for label in ("human", "persona"))
    third, common = make.block(label="human", thread_id=two.id), make.block(label="human")

    def store(tx: Transaction) -> None:
        tx.agents.add(agent)
        for thread in (one, two):
            tx.threads.add(thread)
        for block in (first, second, third, common):
            tx.blocks.add(block)
        tx.agents.attach_blocks(agent.id, [common.id])

    await any_store.write(store)
    own = await any_store.read(lambda tx: tx.blocks.thread_blocks([one.id, two.id, "conv-none"]))
    assert own == {one.id: [first, second], two.id: [third], "conv-none": []}
    for block in (first, common):
        holders = await any_store.read(partial(_holders, block_id=block.id))
        assert holders == [agent.id]
    assert await any_store.read(lambda tx: tx.agents.blocks([agent.id])) == {agent.id: [common]}
    await any_store.write(lambda tx: tx.threads.delete(ORG, one.id, moment(1)))
    assert await blocks(any_store) == [third.id, common.id]
    await any_store.write(lambda tx: tx.agents.delete(ORG, agent.id))
    assert await blocks(any_store) == [common.id]


async def test_the_agents_that_have_a_tool_and_name_it_are_found(
    any_store: Store, make: Make
) -> None:
    tool, other = make.tool(name="a_b"), make.tool(name="axb")
    naming = [RunFirst(tool_name="a_b")], [ConstrainChildTools(tool_name="x", children=("a_b",))]
    holders = [make.agent(tool_rules=tuple(rules)) for rules in naming]
    # A letter in the place of the underscore is another name, and a part of a name is none.
    silent = make.agent(tool_rules=(RunFirst(tool_name="axb"), RunFirst(tool_name="a_b_c")))
    stranger = make.agent(tool_rules=(RunFirst(tool_name="a_b"),))
    await add(any_store, tool, other, *holders, silent, stranger)

    def attach(tx: Transaction) -> None:
        for agent in (*holders, silent):
            tx.agents.attach_tools(agent.id, [tool.id, other.id])
        tx.agents.attach_tools(stranger.id, [other.id])

    await any_store.write(attach)
    found = await any_store.write(lambda tx: tx.agents.lock_holders(tool.id, naming="a_b"))
    assert list(found) == sorted(holders, key=lambda agent: agent.id)
    assert await any_store.write(lambda tx: tx.agents.lock_holders("tool-x", naming="a_b")) == []


async def test_changes_of_one_agent_at_the_same_moment_are_all_kept(
    any_store: Store, make: Make
) -> None:
    """Each writer saves the whole agent, so it must have read what the others have saved."""
    agent = make.agent(metadata={})
    await add(any_store, agent)

    def change(key: str) -> Callable[[Transaction], None]:
        def work(tx: Transaction) -> None:
            if key == "even":
                (found,) = tx.agents.find_for_update(ORG, [agent.id])
            else:
                found = tx.agents.get_for_update(ORG, agent.id)
            counts = found.metadata or {}
            changed = {**counts, key: counts.get(key, 0) + 1}
            tx.agents.save(msgspec.structs.replace(found, metadata=changed))

        return work

    work = [change("even" if number % 2 else "odd") for number in range(40)]
    await asyncio.gather(*(any_store.write(one) for one in work))

    stored = await any_store.read(lambda tx: tx.agents.get(ORG, agent.id))
    assert stored.metadata == {"even": 20, "odd": 20}
    with pytest.raises(NotFound):
        await any_store.write(lambda tx: tx.agents.get_for_update("org-x", agent.id))
    assert await any_store.write(lambda tx: tx.agents.find_for_update("org-x", [agent.id])) == []
