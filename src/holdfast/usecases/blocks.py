"""Memory blocks. A change rewrites the stored system message of every agent that the block is attached to."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct, structs

from holdfast import system_message
from holdfast.core.agents import Actor
from holdfast.core.blocks import (
    DEFAULT_BLOCK_LIMIT,
    DEFAULT_DESCRIPTIONS,
    MAX_VALUE_CHARS,
    Block,
    BlockQuery,
)
from holdfast.core.ids import Kind
from holdfast.errors import AlreadyExists, Unprocessable
from holdfast.ports.services import Services
from holdfast.ports.store import Transaction

# The fields of a block that the compiled system message shows.
_PROMPT_FIELDS = ("label", "value", "limit", "description", "read_only")


class NewBlock(Struct, frozen=True, kw_only=True):
    label: str
    value: str
    limit: int = DEFAULT_BLOCK_LIMIT
    description: str | None = None
    read_only: bool = False
    metadata: dict[str, Any] = {}
    tags: tuple[str, ...] = ()
    is_template: bool = False
    template_name: str | None = None
    hidden: bool | None = None
    project_id: str | None = None


async def create(services: Services, actor: Actor, new: NewBlock) -> Block:
    block = build(services, actor, new)
    await services.store.write(lambda tx: tx.blocks.add(block))
    return block


def build(services: Services, actor: Actor, new: NewBlock) -> Block:
    """Build the block without storing it."""
    check_length(new.value, new.limit)
    now = services.clock.now()
    return Block(
        id=services.ids.new_id(Kind.BLOCK),
        organization_id=actor.organization_id,
        created_at=now,
        updated_at=now,
        created_by_id=actor.user_id,
        last_updated_by_id=actor.user_id,
        **structs.asdict(new)
        | {"description": new.description or DEFAULT_DESCRIPTIONS.get(new.label)},
    )


async def retrieve(services: Services, actor: Actor, block_id: str) -> Block:
    return await services.store.read(lambda tx: tx.blocks.get(actor.organization_id, block_id))


async def list_page(services: Services, actor: Actor, query: BlockQuery) -> Sequence[Block]:
    return await services.store.read(lambda tx: tx.blocks.list(actor.organization_id, query))


async def count(services: Services, actor: Actor, query: BlockQuery) -> int:
    return await services.store.read(lambda tx: tx.blocks.count(actor.organization_id, query))


async def update(
    services: Services, actor: Actor, block_id: str, changes: Mapping[str, object]
) -> Block:
    """Update a block. ``changes`` holds new values of ``Block`` fields; equal values change nothing."""
    now = services.clock.now()
    return await services.store.write(
        lambda tx: apply_update(
            tx, actor, tx.blocks.get(actor.organization_id, block_id), changes, now
        )
    )


def apply_update(
    tx: Transaction, actor: Actor, block: Block, changes: Mapping[str, object], now: datetime
) -> Block:
    """The same as ``update``, within a transaction of the caller."""
    changed = structs.replace(block, **changes)
    if changed == block:
        return block
    if changed.value != block.value or changed.limit != block.limit:
        check_length(changed.value, changed.limit)
    changed = structs.replace(changed, updated_at=now, last_updated_by_id=actor.user_id)
    holders = tx.blocks.holder_ids(block.id)
    if changed.label != block.label:
        _refuse_duplicate_label(tx, changed, holders)
    tx.blocks.save(changed)
    if any(getattr(changed, name) != getattr(block, name) for name in _PROMPT_FIELDS):
        system_message.show_new_blocks(tx, holders, now)
    return changed


async def delete(services: Services, actor: Actor, block_id: str) -> None:
    """Delete the block and detach it from all agents."""

    def work(tx: Transaction) -> None:
        tx.blocks.get(actor.organization_id, block_id)
        holders = tx.blocks.holder_ids(block_id)
        tx.blocks.delete(actor.organization_id, block_id)
        system_message.show_new_blocks(tx, holders, services.clock.now())

    await services.store.write(work)


def check_length(value: str, limit: int) -> None:
    """Refuse a value over the limit. This binds callers of the API, not the agent's memory tools (wire-v1 §10)."""
    most = min(limit, MAX_VALUE_CHARS)
    if len(value) > most:
        raise Unprocessable(f"Edit failed: Exceeds {most} character limit (requested {len(value)})")


def _refuse_duplicate_label(tx: Transaction, block: Block, holders: Sequence[str]) -> None:
    for agent_id, held in tx.agents.blocks(holders).items():
        if any(other.label == block.label and other.id != block.id for other in held):
            raise AlreadyExists(
                f"Agent '{agent_id}' already has a block with label '{block.label}'"
            )
