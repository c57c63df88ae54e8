"""What a built-in tool is made of: what the model is told of it, and the work."""

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
    """What a built-in tool may reach."""

    services: Services
    sandbox: Sandbox
    timeout_seconds: float


# Returns what the model is told; what cannot be done is a ToolError.
ToolFunction = Callable[[ToolServices, ToolContext, Arguments], Awaitable[str]]
TransactionFunction = Callable[[Transaction, ToolContext, Arguments, datetime], str]


@dataclass(frozen=True, slots=True)
class Builtin:
    spec: BuiltinSpec
    run: ToolFunction


def in_transaction(function: TransactionFunction, *, only_reads: bool = False) -> ToolFunction:
    """A tool that is one transaction and nothing else; nobody who writes waits for one that only reads."""

    async def carry_out(hands: ToolServices, context: ToolContext, given: Arguments) -> str:
        store, now = hands.services.store, hands.services.clock.now()
        transact = store.read if only_reads else store.write
        return await transact(lambda tx: function(tx, context, given, now))

    return carry_out


def constant_reply(reply: str) -> ToolFunction:
    """A tool that does nothing but answer."""

    async def carry_out(_hands: ToolServices, _context: ToolContext, _given: Arguments) -> str:
        return reply

    return carry_out


def string_schema(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description}


def string_list_schema(description: str) -> dict[str, Any]:
    return {"type": "array", "items": {"type": "string"}, "description": description}


def parameters(required: Sequence[str], **properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}
