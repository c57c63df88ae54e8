"""The parts of a built-in tool: its description for the model, and the function that runs it."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from holdfast.ports.sandbox import Sandbox
from holdfast.ports.services import Services
from holdfast.ports.store import Transaction
from holdfast.ports.toolbox import BuiltinSpec, ToolContext

Arguments = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolServices:
    """What a built-in tool may use."""

    services: Services
    sandbox: Sandbox
    timeout_seconds: float


# Returns the text for the model; raises ToolError if the call cannot be done.
ToolFunction = Callable[[ToolServices, ToolContext, Arguments], Awaitable[str]]
TransactionFunction = Callable[[Transaction, ToolContext, Arguments, datetime], str]


@dataclass(frozen=True, slots=True)
class Builtin:
    spec: BuiltinSpec
    run: ToolFunction


def in_transaction(function: TransactionFunction, *, only_reads: bool = False) -> ToolFunction:
    """A tool that runs the function in one transaction. One that only reads does not wait for writers."""

    async def run(tool_services: ToolServices, context: ToolContext, arguments: Arguments) -> str:
        store, now = tool_services.services.store, tool_services.services.clock.now()
        transact = store.read if only_reads else store.write
        return await transact(lambda tx: function(tx, context, arguments, now))

    return run


def constant_reply(reply: str) -> ToolFunction:
    """A tool that does nothing and returns the same text each time."""

    async def run(
        _tool_services: ToolServices, _context: ToolContext, _arguments: Arguments
    ) -> str:
        return reply

    return run


def string_schema(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description}


def string_list_schema(description: str) -> dict[str, Any]:
    return {"type": "array", "items": {"type": "string"}, "description": description}


def parameters(required: Sequence[str], **properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}
