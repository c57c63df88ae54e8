"""The parts of a built-in tool: its description for the model, and the function that runs it."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from holdfast.adapters.web.pages import WebPages
from holdfast.adapters.web.search import WebSearch
from holdfast.core.agents import Actor
from holdfast.core.search import Match
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
    search: WebSearch
    pages: WebPages


# Returns the text for the model; raises ToolError if the call cannot be done.
ToolFunction = Callable[[ToolServices, ToolContext, Arguments], Awaitable[str]]
TransactionFunction = Callable[[Transaction, ToolContext, Arguments, datetime], str]


@dataclass(frozen=True, slots=True)
class Builtin:
    spec: BuiltinSpec
    run: ToolFunction


def in_transaction(function: TransactionFunction) -> ToolFunction:
    """A tool that runs the function in one transaction."""

    async def run(tool_services: ToolServices, context: ToolContext, arguments: Arguments) -> str:
        store, now = tool_services.services.store, tool_services.services.clock.now()
        return await store.write(lambda tx: function(tx, context, arguments, now))

    return run


def constant_reply(reply: str) -> ToolFunction:
    """A tool that does nothing and returns the same text each time."""

    async def run(
        _tool_services: ToolServices, _context: ToolContext, _arguments: Arguments
    ) -> str:
        return reply

    return run


def tool_actor(context: ToolContext) -> Actor:
    """Whom a tool acts for when it calls a use case."""
    return Actor(context.user_id, context.organization_id)


def relevance(match: Match) -> dict[str, Any]:
    """How well something fits a query, for the model. Ranks that it does not have are left out."""
    ranks = {"vector_rank": match.vector_rank, "fts_rank": match.word_rank}
    known = {name: rank for name, rank in ranks.items() if rank is not None}
    return {"rrf_score": match.score, **known}


def string_schema(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description}


def string_list_schema(description: str) -> dict[str, Any]:
    return {"type": "array", "items": {"type": "string"}, "description": description}


def parameters(required: Sequence[str], **properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}
