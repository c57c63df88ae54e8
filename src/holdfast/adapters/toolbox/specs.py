"""What a built-in tool is made of: what the model is told of it, and the work."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from holdfast.ports.house import House
from holdfast.ports.sandbox import Sandbox
from holdfast.ports.store import Transaction
from holdfast.ports.toolbox import BuiltinSpec, ToolContext

Arguments = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hands:
    """What a built-in tool may reach."""

    house: House
    sandbox: Sandbox
    timeout_seconds: float


# Returns what the model is told; what cannot be done is a ToolError.
Work = Callable[[Hands, ToolContext, Arguments], Awaitable[str]]
StoreWork = Callable[[Transaction, ToolContext, Arguments, datetime], str]


@dataclass(frozen=True, slots=True)
class Builtin:
    spec: BuiltinSpec
    work: Work


def over_the_store(work: StoreWork, *, only_reads: bool = False) -> Work:
    """A tool that is one transaction and nothing else; nobody who writes waits for one that only reads."""

    async def carry_out(hands: Hands, context: ToolContext, given: Arguments) -> str:
        store, now = hands.house.store, hands.house.clock.now()
        transact = store.read if only_reads else store.write
        return await transact(lambda tx: work(tx, context, given, now))

    return carry_out


def saying(words: str) -> Work:
    """A tool that does nothing but answer."""

    async def carry_out(_hands: Hands, _context: ToolContext, _given: Arguments) -> str:
        return words

    return carry_out


def text(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description}


def texts(description: str) -> dict[str, Any]:
    return {"type": "array", "items": {"type": "string"}, "description": description}


def parameters(required: Sequence[str], **properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}
