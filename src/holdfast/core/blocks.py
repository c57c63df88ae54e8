"""Memory blocks, and how the system message shows them. How tools edit their values is in ``block_edits``."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct

from holdfast.core.paging import Page

DEFAULT_BLOCK_LIMIT = 100_000
# Whatever the limit of the block: its value is in the system message of every agent that has it.
MAX_VALUE_CHARS = 1_000_000
MAX_LABEL_CHARS = 50
LABEL_PATTERN = r"^[a-zA-Z0-9_/-]+$"

DEFAULT_DESCRIPTIONS = {
    "human": "What you know about the person you talk to: facts, wishes, earlier context. "
    "Keep it current so that your answers fit that person.",
    "persona": "Who you are: your character, tone and way of working. "
    "It guides how you speak and act.",
}


class Block(Struct, frozen=True, kw_only=True):
    id: str
    organization_id: str
    label: str
    value: str
    created_at: datetime
    updated_at: datetime
    limit: int = DEFAULT_BLOCK_LIMIT
    description: str | None = None
    read_only: bool = False
    metadata: dict[str, Any] = {}
    tags: tuple[str, ...] = ()
    is_template: bool = False
    template_name: str | None = None
    hidden: bool | None = None
    project_id: str | None = None
    created_by_id: str | None = None
    last_updated_by_id: str | None = None
    # Set for an isolated block: this conversation shows it instead of the agent's block with the same label.
    thread_id: str | None = None


class BlockQuery(Struct, frozen=True, kw_only=True):
    """Filters of a list of blocks. Conditions combine with AND; None means any."""

    page: Page
    agent_id: str | None = None
    label: str | None = None
    name: str | None = None
    label_search: str | None = None
    description_search: str | None = None
    value_search: str | None = None
    tags: tuple[str, ...] = ()
    match_all_tags: bool = False
    templates_only: bool = False
    project_id: str | None = None
    identity_id: str | None = None
    identifier_keys: tuple[str, ...] = ()
    connected_gt: int | None = None
    connected_lt: int | None = None
    connected_eq: int | None = None


def visible_blocks(agent_blocks: Sequence[Block], isolated: Sequence[Block]) -> tuple[Block, ...]:
    """The blocks that a conversation shows: the agent's, with isolated blocks replacing those of the same label."""
    shown = {block.label: block for block in agent_blocks} | {
        block.label: block for block in isolated
    }
    return tuple(shown.values())


def render_blocks(blocks: Sequence[Block]) -> str:
    if not blocks:
        return ""
    body = "\n\n".join(_render_block(block) for block in blocks)
    return (
        "<memory_blocks>\n"
        "The following memory blocks are currently engaged in your core memory unit:\n\n"
        f"{body}\n\n</memory_blocks>"
    )


def _render_block(block: Block) -> str:
    read_only = "- read_only=true\n" if block.read_only else ""
    return (
        f"<{block.label}>\n"
        f"<description>\n{block.description or ''}\n</description>\n"
        f"<metadata>\n{read_only}- chars_current={len(block.value)}\n"
        f"- chars_limit={block.limit}\n</metadata>\n"
        f"<value>\n{block.value}\n</value>\n"
        f"</{block.label}>"
    )
