"""What an agent keeps in mind: blocks, how tools edit them, and the system prompt that shows them."""

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct

from holdfast.core import tool_rules
from holdfast.core.paging import Page
from holdfast.errors import ToolError

DEFAULT_BLOCK_LIMIT = 100_000
MAX_LABEL_CHARS = 50
LABEL_PATTERN = r"^[a-zA-Z0-9_/-]+$"
READ_ONLY_ERROR = "Error This block is read-only and cannot be edited."
CORE_MEMORY_PLACEHOLDER = "{CORE_MEMORY}"

DEFAULT_DESCRIPTIONS = {
    "human": "What you know about the person you talk to: facts, wishes, earlier context. "
    "Keep it current so that your answers fit that person.",
    "persona": "Who you are: your character, tone and way of working. "
    "It guides how you speak and act.",
}

DEFAULT_SYSTEM = """<base_instructions>
You are an assistant with a memory of your own.

Memory blocks are shown below. They are always in view; edit them with your memory tools when you learn \
something that should last. What was said earlier and is no longer in view can be found with \
conversation_search, if you have that tool.

You may call tools. After each call you get its result and go on. To end your turn and hand the word back \
to the user, answer without calling a tool.
</base_instructions>"""

_COMPILED_AT = re.compile(r"^- System prompt last recompiled: (.+)$", re.MULTILINE)
_LINE_NUMBER = re.compile(r"^\s*\d+\s*→", re.MULTILINE)


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
    # The conversation whose own it is: shown there in the place of the agent's block of that label.
    thread_id: str | None = None


class BlockQuery(Struct, frozen=True, kw_only=True):
    """Which blocks a list shows. Conditions combine with AND; None means any."""

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
    connected_gt: int | None = None
    connected_lt: int | None = None
    connected_eq: int | None = None


class SystemPromptParts(Struct, frozen=True, kw_only=True):
    """All that the compiled system message is made of."""

    agent_id: str
    conversation: str
    system: str
    compiled_at: str
    recall_count: int
    blocks: tuple[Block, ...] = ()
    rules: tuple[tool_rules.ToolRule, ...] = ()


def compile_system(prompt: SystemPromptParts) -> str:
    """The system message as the model reads it (wire-v1 §7.1)."""
    sections = [
        render_blocks(prompt.blocks),
        tool_rules.render(prompt.rules),
        _render_metadata(prompt),
    ]
    memory = "\n\n".join(section for section in sections if section)
    if CORE_MEMORY_PLACEHOLDER in prompt.system:
        return prompt.system.replace(CORE_MEMORY_PLACEHOLDER, memory)
    return f"{prompt.system}\n\n{memory}" if prompt.system else memory


def visible_blocks(agent_blocks: Sequence[Block], isolated: Sequence[Block]) -> tuple[Block, ...]:
    """The blocks that a conversation shows: the agent's, but its own where it has one of that label."""
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


def _render_metadata(prompt: SystemPromptParts) -> str:
    return (
        "<memory_metadata>\n"
        f"- AGENT_ID: {prompt.agent_id}\n"
        f"- CONVERSATION_ID: {prompt.conversation}\n"
        f"- System prompt last recompiled: {prompt.compiled_at}\n"
        f"- {prompt.recall_count} previous messages between you and the user are stored in recall memory\n"
        "</memory_metadata>"
    )


def parse_compiled_at(text: str) -> str | None:
    """When a compiled system message says that it was compiled."""
    found = _COMPILED_AT.search(text)
    return found and found.group(1)


def insert(value: str, text: str, line: int = -1) -> str:
    """The value with ``text`` as a new line; 0 is the start, -1 the end."""
    _refuse_line_numbers(text)
    lines = value.split("\n") if value else []
    if line < -1 or line > len(lines):
        raise ToolError(
            f"Error: insert_line {line} is out of range: it must be between 0 and {len(lines)}, or -1 for the end."
        )
    at = len(lines) if line == -1 else line
    return "\n".join([*lines[:at], *text.split("\n"), *lines[at:]])


def replace(value: str, old: str, new: str) -> str:
    """The value with the one occurrence of ``old`` replaced."""
    _refuse_line_numbers(old)
    _refuse_line_numbers(new)
    found = value.count(old) if old else 0
    if found == 0:
        raise ToolError("Error: old_string was not found in the block. It must match exactly.")
    if found > 1:
        raise ToolError(
            f"Error: old_string was found {found} times. Add more of the text around it so that it is unique."
        )
    return value.replace(old, new)


def apply_patch(value: str, patch: str) -> str:
    """The value after every hunk of a patch in the form of a unified diff. What a hunk keeps and removes must
    stand in the value exactly once; its line numbers are not looked at."""
    hunks = _parse_hunks(patch)
    if not hunks:
        raise ToolError("Error: the patch changes nothing: no line starts with '+' or '-'.")
    for before, after in hunks:
        value = _apply_hunk(value, before, after)
    return value


Hunk = tuple[list[str], list[str]]


def _parse_hunks(patch: str) -> list[Hunk]:
    """Of each hunk that changes something, the lines that it finds and those that it leaves."""
    hunks: list[Hunk] = [([], [])]
    for line in patch.strip("\n").split("\n"):
        if line.startswith("@@"):
            hunks.append(([], []))
        elif line.startswith(("---", "+++", "\\")):
            continue
        else:
            _add_line(hunks[-1], line)
    return [hunk for hunk in hunks if hunk[0] != hunk[1]]


def _add_line(hunk: Hunk, line: str) -> None:
    before, after = hunk
    sign, text = line[:1], line[1:]
    if sign not in ("", " ", "+", "-"):
        raise ToolError(
            f"Error: a line of a patch starts with a space, '-', '+' or '@@', unlike {line[:60]!r}."
        )
    if sign != "+":
        before.append(text)
    if sign != "-":
        after.append(text)


def _apply_hunk(value: str, before: list[str], after: list[str]) -> str:
    lines = value.split("\n") if value else []
    if not before:
        return "\n".join([*lines, *after])
    size = len(before)
    places = [at for at in range(len(lines) - size + 1) if lines[at : at + size] == before]
    if len(places) != 1:
        shown = "\n".join(before)
        raise ToolError(
            f"Error: these lines of the patch must stand in the block exactly once, not {len(places)} times. "
            f"The block was not changed.\n{shown}"
        )
    at = places[0]
    return "\n".join([*lines[:at], *after, *lines[at + size :]])


def label_from_path(path: str) -> str:
    """The label of the block at ``/memories/<label>``."""
    label = path.removeprefix("/memories/").strip("/")
    if not re.fullmatch(LABEL_PATTERN, label) or len(label) > MAX_LABEL_CHARS:
        raise ToolError(
            f"Error: {path!r} is no path of a memory block. It is /memories/<label>; a label has letters, digits, "
            f"'_', '-' and '/', at most {MAX_LABEL_CHARS}."
        )
    return label


def _refuse_line_numbers(text: str) -> None:
    if _LINE_NUMBER.search(text):
        raise ToolError(
            "Error: leave out the line number prefixes: they are not part of the block."
        )
