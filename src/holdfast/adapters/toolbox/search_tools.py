"""Built-in tool for searching earlier messages (wire-v1 §7.3)."""

import json
from datetime import UTC, datetime, timedelta

from holdfast.adapters.toolbox.specs import (
    Arguments,
    Builtin,
    in_transaction,
    parameters,
    string_schema,
)
from holdfast.core.message_search import MessageFilter
from holdfast.core.messages import Message, Role
from holdfast.core.tools import ToolKind
from holdfast.errors import ToolError
from holdfast.ports.store import Transaction
from holdfast.ports.toolbox import BuiltinSpec, ToolContext

DEFAULT_RESULTS = 5
MAX_RESULTS = 50


def _search(tx: Transaction, context: ToolContext, arguments: Arguments, now: datetime) -> str:
    roles = arguments.get("roles") or [Role.USER, Role.ASSISTANT]
    where = MessageFilter(
        agent_id=context.agent_id,
        roles=tuple(map(Role, roles)),
        since=_parse_date(arguments, "start_date"),
        until=_parse_date(arguments, "end_date", ends=True),
    )
    limit = min(max(int(arguments.get("limit") or DEFAULT_RESULTS), 1), MAX_RESULTS)
    query = str(arguments.get("query") or "")
    found = tx.messages.search(context.organization_id, where, query, limit)
    if not found:
        return json.dumps({"message": "No results found.", "results": []})
    results = [_render_result(item.message, now) for item in found]
    return json.dumps(
        {"message": f"Showing {len(results)} results:", "results": results}, ensure_ascii=False
    )


def _parse_date(arguments: Arguments, name: str, *, ends: bool = False) -> datetime | None:
    """Parse a date or a time; a date as the end of a range includes the whole day."""
    value = str(arguments.get(name) or "")
    if not value:
        return None
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        raise ToolError(
            f"Error: {name} must be a date such as 2026-01-31 or 2026-01-31T14:00:00+00:00."
        ) from None
    if ends and len(value) <= len("2026-01-31"):
        moment += timedelta(days=1, microseconds=-1)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _render_result(row: Message, now: datetime) -> dict[str, str]:
    return {
        "timestamp": row.created_at.isoformat(),
        "time_ago": _render_age(now - row.created_at),
        "role": row.role,
        "content": row.text,
    }


def _render_age(passed: timedelta) -> str:
    seconds = max(int(passed.total_seconds()), 0)
    for size, letter in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds // size}{letter} ago"
    return f"{seconds}s ago"


SEARCH_TOOLS = (
    Builtin(
        BuiltinSpec(
            name="conversation_search",
            description="Search what was said before, also what is no longer in view.",
            kind=ToolKind.CORE,
            parallel=True,
            parameters=parameters(
                [],
                query=string_schema("Words to look for."),
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
                start_date=string_schema(
                    "Only what was said at this time or later, such as 2026-01-31."
                ),
                end_date=string_schema(
                    "Only what was said up to this time; a date means its whole day."
                ),
            ),
        ),
        in_transaction(_search, only_reads=True),
    ),
)
