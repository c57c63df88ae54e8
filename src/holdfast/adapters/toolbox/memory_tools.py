"""Built-in tools with which an agent edits its own memory blocks (wire-v1 §7.3)."""

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial

from msgspec.structs import replace

from holdfast import system_message
from holdfast.adapters.toolbox.specs import (
    Arguments,
    Builtin,
    ToolServices,
    TransactionFunction,
    constant_reply,
    in_transaction,
    parameters,
    string_schema,
)
from holdfast.core import block_edits
from holdfast.core.blocks import Block, visible_blocks
from holdfast.core.ids import Kind
from holdfast.core.tools import ToolKind
from holdfast.errors import ToolError
from holdfast.ports.store import Transaction
from holdfast.ports.toolbox import BuiltinSpec, ToolContext

Change = Callable[[str], str]


def _find_editable_block(tx: Transaction, context: ToolContext, label: str) -> Block:
    """The visible block with that label. Raises ToolError if there is none, or it is read-only."""
    blocks = _visible_blocks(tx, context)
    block = next((item for item in blocks if item.label == label), None)
    if block is None:
        known = ", ".join(sorted(item.label for item in blocks)) or "none"
        raise ToolError(f"Error: there is no memory block {label!r}. The blocks are: {known}.")
    if block.read_only:
        raise ToolError(block_edits.READ_ONLY_ERROR)
    return block


def _visible_blocks(tx: Transaction, context: ToolContext) -> Sequence[Block]:
    own = tx.blocks.thread_blocks([context.thread_id])[context.thread_id]
    return visible_blocks(tx.agents.blocks([context.agent_id]).get(context.agent_id, ()), own)


def _edit(tx: Transaction, context: ToolContext, label: str, now: datetime, change: Change) -> str:
    """Change a block's value, update every system message that contains it, and return the new value."""
    block = _find_editable_block(tx, context, label)
    value = change(block.value)
    _save(tx, context, replace(block, value=value), now)
    return value


def _save(tx: Transaction, context: ToolContext, block: Block, now: datetime) -> None:
    tx.blocks.save(replace(block, updated_at=now))
    _show(tx, context, tx.blocks.holder_ids(block.id), now)


def _show(tx: Transaction, context: ToolContext, agent_ids: Sequence[str], now: datetime) -> None:
    system_message.show_new_blocks(tx, agent_ids, now, own_thread=context.thread_id)


def _insert(tx: Transaction, context: ToolContext, arguments: Arguments, now: datetime) -> str:
    line = int(arguments.get("insert_line", -1))
    new = str(arguments["new_string"])
    return _edit(
        tx, context, arguments["label"], now, lambda value: block_edits.insert(value, new, line)
    )


def _replace(tx: Transaction, context: ToolContext, arguments: Arguments, now: datetime) -> str:
    old, new = str(arguments["old_string"]), str(arguments["new_string"])
    return _edit(
        tx, context, arguments["label"], now, lambda value: block_edits.replace(value, old, new)
    )


def _rethink(tx: Transaction, context: ToolContext, arguments: Arguments, now: datetime) -> str:
    return _edit(tx, context, arguments["label"], now, lambda _: str(arguments["new_memory"]))


def _apply_patch(tx: Transaction, context: ToolContext, arguments: Arguments, now: datetime) -> str:
    patch = str(arguments["patch"])
    return _edit(
        tx, context, arguments["label"], now, lambda value: block_edits.apply_patch(value, patch)
    )


def _append(tx: Transaction, context: ToolContext, arguments: Arguments, now: datetime) -> str:
    new = str(arguments["content"])
    return _edit(
        tx, context, arguments["label"], now, lambda value: f"{value}\n{new}" if value else new
    )


def _replace_content(
    tx: Transaction, context: ToolContext, arguments: Arguments, now: datetime
) -> str:
    old, new = str(arguments["old_content"]), str(arguments["new_content"])
    return _edit(
        tx, context, arguments["label"], now, lambda value: block_edits.replace(value, old, new)
    )


async def _run_memory_command(
    tool_services: ToolServices, context: ToolContext, arguments: Arguments
) -> str:
    """The tool ``memory``: edits, creates, renames and deletes blocks."""
    command = str(arguments["command"])
    if command == "create":
        return await _create(tool_services, context, arguments)
    if command not in _COMMANDS:
        known = ", ".join(["create", *_COMMANDS])
        raise ToolError(f"Error: there is no command {command!r}. The commands are: {known}.")
    return await in_transaction(_COMMANDS[command])(tool_services, context, arguments)


async def _create(tool_services: ToolServices, context: ToolContext, arguments: Arguments) -> str:
    services, label = tool_services.services, _label(arguments, "path")
    now = services.clock.now()
    block = Block(
        id=services.ids.new_id(Kind.BLOCK),
        organization_id=context.organization_id,
        label=label,
        value=str(arguments.get("file_text") or ""),
        description=str(arguments.get("description") or "") or None,
        created_at=now,
        updated_at=now,
    )

    def work(tx: Transaction) -> str:
        _refuse_existing(tx, context, label)
        tx.blocks.add(block)
        tx.agents.attach_blocks(context.agent_id, [block.id])
        _show(tx, context, [context.agent_id], now)
        return f"Created the memory block {label!r}."

    return await services.store.write(work)


def _delete(tx: Transaction, context: ToolContext, arguments: Arguments, now: datetime) -> str:
    """Detach the block from the agent; the block itself stays, since other agents may have it. A block of this
    conversation alone is deleted; the agent's block with the same label is visible again then."""
    block = _find_editable_block(tx, context, _label(arguments, "path"))
    if block.thread_id is None:
        tx.agents.detach_blocks(context.agent_id, [block.id])
    else:
        tx.blocks.delete(context.organization_id, block.id)
    _show(tx, context, [context.agent_id], now)
    return f"Removed the memory block {block.label!r}."


def _rename(tx: Transaction, context: ToolContext, arguments: Arguments, now: datetime) -> str:
    """Change the label, or with ``path`` the description."""
    if arguments.get("path"):
        block = _find_editable_block(tx, context, _label(arguments, "path"))
        _save(
            tx, context, replace(block, description=_required_text(arguments, "description")), now
        )
        return f"Changed the description of the memory block {block.label!r}."
    block = _find_editable_block(tx, context, _label(arguments, "old_path"))
    label = _label(arguments, "new_path")
    for agent_id in tx.blocks.holder_ids(block.id):
        _refuse_existing(tx, replace(context, agent_id=agent_id), label)
    _save(tx, context, replace(block, label=label), now)
    return f"Renamed the memory block {block.label!r} to {label!r}."


def _replace_at_path(
    tx: Transaction, context: ToolContext, arguments: Arguments, now: datetime
) -> str:
    old, new = _required_text(arguments, "old_string"), str(arguments.get("new_string") or "")
    return _edit(
        tx,
        context,
        _label(arguments, "path"),
        now,
        lambda value: block_edits.replace(value, old, new),
    )


def _insert_at_path(
    tx: Transaction, context: ToolContext, arguments: Arguments, now: datetime
) -> str:
    line = arguments.get("insert_line")
    change = partial(
        block_edits.insert,
        text=_required_text(arguments, "insert_text"),
        line=-1 if line is None else int(line),
    )
    return _edit(tx, context, _label(arguments, "path"), now, change)


_COMMANDS: dict[str, TransactionFunction] = {
    "str_replace": _replace_at_path,
    "insert": _insert_at_path,
    "delete": _delete,
    "rename": _rename,
}


def _required_text(arguments: Arguments, name: str) -> str:
    if not arguments.get(name):
        raise ToolError(f"Error: the command {arguments['command']!r} needs {name!r}.")
    return str(arguments[name])


def _label(arguments: Arguments, name: str) -> str:
    return block_edits.label_from_path(_required_text(arguments, name))


def _refuse_existing(tx: Transaction, context: ToolContext, label: str) -> None:
    if any(block.label == label for block in _visible_blocks(tx, context)):
        raise ToolError(f"Error: there is a memory block {label!r} already.")


_LABEL = string_schema("The label of the memory block.")

MEMORY_TOOLS = (
    Builtin(
        BuiltinSpec(
            name="memory_insert",
            description="Insert text into a memory block as a new line. Returns the block's new value.",
            kind=ToolKind.SLEEPTIME,
            parameters=parameters(
                ["label", "new_string"],
                label=_LABEL,
                new_string=string_schema("The text to insert, without line numbers."),
                insert_line={
                    "type": "integer",
                    "description": "The line after which to insert; 0 is the start, -1 the end.",
                    "default": -1,
                },
            ),
        ),
        in_transaction(_insert),
    ),
    Builtin(
        BuiltinSpec(
            name="memory_replace",
            description="Replace a piece of text in a memory block. It must occur exactly once. "
            "Returns the block's new value.",
            kind=ToolKind.SLEEPTIME,
            parameters=parameters(
                ["label", "old_string", "new_string"],
                label=_LABEL,
                old_string=string_schema("The text to replace, exactly as it stands in the block."),
                new_string=string_schema("The text to put in its place; may be empty."),
            ),
        ),
        in_transaction(_replace),
    ),
    Builtin(
        BuiltinSpec(
            name="memory_rethink",
            description="Rewrite a whole memory block. Returns the block's new value.",
            kind=ToolKind.SLEEPTIME,
            parameters=parameters(
                ["label", "new_memory"],
                label=_LABEL,
                new_memory=string_schema("The new value of the block."),
            ),
        ),
        in_transaction(_rethink),
    ),
    Builtin(
        BuiltinSpec(
            name="memory_finish_edits",
            description="Say that you are done with editing your memory.",
            kind=ToolKind.SLEEPTIME,
            parameters=parameters([]),
        ),
        constant_reply("None"),
    ),
    Builtin(
        BuiltinSpec(
            name="memory_apply_patch",
            description="Change several places of a memory block at once, by a patch in the form of a unified "
            "diff: lines that start with a space stay, with '-' go, with '+' come; '@@' starts the next "
            "place. Returns the block's new value.",
            kind=ToolKind.SLEEPTIME,
            parameters=parameters(
                ["label", "patch"],
                label=_LABEL,
                patch=string_schema("The patch, without file headers."),
            ),
        ),
        in_transaction(_apply_patch),
    ),
    Builtin(
        BuiltinSpec(
            name="memory",
            description="Create, edit, rename and delete memory blocks. A block's path is /memories/<label>.",
            kind=ToolKind.MEMORY,
            parameters=parameters(
                ["command"],
                command={
                    "type": "string",
                    "enum": ["create", *_COMMANDS],
                    "description": "What to do.",
                },
                path=string_schema(
                    "The block: for create, str_replace, insert, delete, and for rename to "
                    "change its description."
                ),
                file_text=string_schema("create: the value of the new block."),
                description=string_schema("create, rename: what the block is for."),
                old_string=string_schema("str_replace: the text to replace, exactly as it stands."),
                new_string=string_schema("str_replace: the text to put in its place."),
                insert_line={
                    "type": "integer",
                    "description": "insert: the line after which to insert; the end if left out.",
                },
                insert_text=string_schema("insert: the text to insert."),
                old_path=string_schema("rename: the block."),
                new_path=string_schema("rename: its new path."),
            ),
        ),
        _run_memory_command,
    ),
    Builtin(
        BuiltinSpec(
            name="core_memory_append",
            description="Add text at the end of a memory block. Returns the block's new value.",
            kind=ToolKind.CORE,
            parameters=parameters(
                ["label", "content"], label=_LABEL, content=string_schema("The text to add.")
            ),
        ),
        in_transaction(_append),
    ),
    Builtin(
        BuiltinSpec(
            name="core_memory_replace",
            description="Replace a piece of text in a memory block. Returns the block's new value.",
            kind=ToolKind.CORE,
            parameters=parameters(
                ["label", "old_content", "new_content"],
                label=_LABEL,
                old_content=string_schema(
                    "The text to replace, exactly as it stands in the block."
                ),
                new_content=string_schema("The text to put in its place."),
            ),
        ),
        in_transaction(_replace_content),
    ),
)
