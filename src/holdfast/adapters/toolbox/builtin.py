"""The tools that Holdfast brings along: memory and search (wire-v1 §7.3).

Each is a plain function over one transaction; what it cannot do it says with a ToolError.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core import memory
from holdfast.core.memory import Block
from holdfast.core.messages import Message, Role
from holdfast.core.tools import ToolKind
from holdfast.errors import ToolError
from holdfast.ports.store import Transaction
from holdfast.ports.toolbox import BuiltinSpec, ToolContext
from holdfast.usecases import system_prompt

Arguments = Mapping[str, Any]
Work = Callable[[Transaction, ToolContext, Arguments, datetime], str]

DEFAULT_RESULTS = 5
MAX_RESULTS = 50


class Builtin(Struct, frozen=True):
    spec: BuiltinSpec
    work: Work


def _text(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description}


def _parameters(required: Sequence[str], **properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


def _edit(
    tx: Transaction,
    context: ToolContext,
    label: str,
    now: datetime,
    change: Callable[[str], str],
) -> str:
    """Change a block of the agent and every system message that shows it; returns the new value."""
    blocks = tx.agents.blocks([context.agent_id]).get(context.agent_id, ())
    block = next((item for item in blocks if item.label == label), None)
    if block is None:
        known = ", ".join(sorted(item.label for item in blocks)) or "none"
        raise ToolError(f"Error: there is no memory block {label!r}. The blocks are: {known}.")
    if block.read_only:
        raise ToolError(memory.READ_ONLY)
    value = change(block.value)
    _save(tx, replace(block, value=value, updated_at=now), now)
    return value


def _save(tx: Transaction, block: Block, now: datetime) -> None:
    tx.blocks.save(block)
    for agent_id in tx.blocks.holders(block.id):
        system_prompt.rebuild(tx, agent_id, now)


def _memory_insert(tx: Transaction, context: ToolContext, given: Arguments, now: datetime) -> str:
    line = int(given.get("insert_line", -1))
    text = str(given["new_string"])
    return _edit(tx, context, given["label"], now, lambda value: memory.insert(value, text, line))


def _memory_replace(tx: Transaction, context: ToolContext, given: Arguments, now: datetime) -> str:
    old, new = str(given["old_string"]), str(given["new_string"])
    return _edit(tx, context, given["label"], now, lambda value: memory.replace(value, old, new))


def _memory_rethink(tx: Transaction, context: ToolContext, given: Arguments, now: datetime) -> str:
    return _edit(tx, context, given["label"], now, lambda _: str(given["new_memory"]))


def _core_memory_append(
    tx: Transaction, context: ToolContext, given: Arguments, now: datetime
) -> str:
    text = str(given["content"])
    return _edit(
        tx, context, given["label"], now, lambda value: f"{value}\n{text}" if value else text
    )


def _core_memory_replace(
    tx: Transaction, context: ToolContext, given: Arguments, now: datetime
) -> str:
    old, new = str(given["old_content"]), str(given["new_content"])
    return _edit(tx, context, given["label"], now, lambda value: memory.replace(value, old, new))


def _conversation_search(
    tx: Transaction, context: ToolContext, given: Arguments, now: datetime
) -> str:
    del now
    limit = min(max(int(given.get("limit") or DEFAULT_RESULTS), 1), MAX_RESULTS)
    roles = given.get("roles") or [Role.USER, Role.ASSISTANT]
    rows = tx.messages.search(
        context.agent_id, str(given.get("query") or ""), roles=roles, limit=limit
    )
    if not rows:
        return json.dumps({"message": "No results found.", "results": []})
    found = [_found(row) for row in rows]
    return json.dumps({"message": f"Showing {len(found)} results:", "results": found})


def _found(row: Message) -> dict[str, str]:
    return {"timestamp": row.created_at.isoformat(), "role": row.role, "content": row.text}


def _send_message(tx: Transaction, context: ToolContext, given: Arguments, now: datetime) -> str:
    del tx, context, given, now
    return "Sent message successfully."


_LABEL = _text("The label of the memory block.")

_SPECS: tuple[tuple[BuiltinSpec, Work], ...] = (
    (
        BuiltinSpec(
            name="memory_insert",
            description="Insert text into a memory block as a new line. Returns the block's new value.",
            kind=ToolKind.SLEEPTIME,
            parameters=_parameters(
                ["label", "new_string"],
                label=_LABEL,
                new_string=_text("The text to insert, without line numbers."),
                insert_line={
                    "type": "integer",
                    "description": "The line after which to insert; 0 is the start, -1 the end.",
                    "default": -1,
                },
            ),
        ),
        _memory_insert,
    ),
    (
        BuiltinSpec(
            name="memory_replace",
            description="Replace a piece of text in a memory block. It must occur exactly once. "
            "Returns the block's new value.",
            kind=ToolKind.SLEEPTIME,
            parameters=_parameters(
                ["label", "old_string", "new_string"],
                label=_LABEL,
                old_string=_text("The text to replace, exactly as it stands in the block."),
                new_string=_text("The text to put in its place; may be empty."),
            ),
        ),
        _memory_replace,
    ),
    (
        BuiltinSpec(
            name="memory_rethink",
            description="Rewrite a whole memory block. Returns the block's new value.",
            kind=ToolKind.SLEEPTIME,
            parameters=_parameters(
                ["label", "new_memory"],
                label=_LABEL,
                new_memory=_text("The new value of the block."),
            ),
        ),
        _memory_rethink,
    ),
    (
        BuiltinSpec(
            name="core_memory_append",
            description="Add text at the end of a memory block. Returns the block's new value.",
            kind=ToolKind.CORE,
            parameters=_parameters(
                ["label", "content"], label=_LABEL, content=_text("The text to add.")
            ),
        ),
        _core_memory_append,
    ),
    (
        BuiltinSpec(
            name="core_memory_replace",
            description="Replace a piece of text in a memory block. Returns the block's new value.",
            kind=ToolKind.CORE,
            parameters=_parameters(
                ["label", "old_content", "new_content"],
                label=_LABEL,
                old_content=_text("The text to replace, exactly as it stands in the block."),
                new_content=_text("The text to put in its place."),
            ),
        ),
        _core_memory_replace,
    ),
    (
        BuiltinSpec(
            name="conversation_search",
            description="Search what was said before, also what is no longer in view.",
            kind=ToolKind.CORE,
            parallel=True,
            parameters=_parameters(
                [],
                query=_text("Words to look for."),
                roles={
                    "type": "array",
                    "items": {"type": "string", "enum": ["assistant", "user"]},
                    "description": "Whose messages to look through; both if left out.",
                },
                limit={
                    "type": "integer",
                    "description": "How many results at the most.",
                    "default": DEFAULT_RESULTS,
                },
            ),
        ),
        _conversation_search,
    ),
    (
        BuiltinSpec(
            name="send_message",
            description="Send a message to the user.",
            kind=ToolKind.CORE,
            parameters=_parameters(["message"], message=_text("What to say.")),
        ),
        _send_message,
    ),
)

BUILTIN: Mapping[str, Builtin] = {spec.name: Builtin(spec, work) for spec, work in _SPECS}
