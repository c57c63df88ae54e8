"""Built-in tool for searching earlier messages (wire-v1 §7.3)."""

import json
from datetime import timedelta

from holdfast.adapters.toolbox.arguments import (
    read_choices,
    read_count,
    read_date,
    read_text,
)
from holdfast.adapters.toolbox.specs import (
    Arguments,
    Builtin,
    ToolServices,
    parameters,
    relevance,
    string_schema,
    tool_actor,
)
from holdfast.core.message_search import MessageFilter, SearchMode
from holdfast.core.messages import Message, Role, sent_texts
from holdfast.core.periods import first_moment, last_moment
from holdfast.core.system_prompt import load_zone, local_time
from holdfast.core.tools import ToolKind
from holdfast.ports.toolbox import BuiltinSpec, ToolContext
from holdfast.usecases import message_search

DEFAULT_RESULTS = 5
MAX_RESULTS = 50

# What the model may ask for. Results of tools are never found: only what was said is.
_ROLES = (Role.ASSISTANT, Role.USER, Role.TOOL)
_FOUND_ROLES = (Role.ASSISTANT, Role.USER)


async def _search(tool_services: ToolServices, context: ToolContext, arguments: Arguments) -> str:
    services = tool_services.services
    agent = await services.store.read(
        lambda tx: tx.agents.get(context.organization_id, context.agent_id)
    )
    zone = load_zone(agent.timezone)
    roles = read_choices(arguments, "roles", _ROLES, _FOUND_ROLES)
    where = MessageFilter(
        agent_id=agent.id,
        roles=tuple(role for role in _FOUND_ROLES if role in roles),
        since=first_moment(read_date(arguments, "start_date"), zone),
        until=last_moment(read_date(arguments, "end_date"), zone),
    )
    limit = read_count(arguments, "limit", DEFAULT_RESULTS, MAX_RESULTS)
    query = read_text(arguments, "query")
    result = await message_search.search(
        services, tool_actor(context), where, query, mode=SearchMode.HYBRID, limit=limit
    )
    now = services.clock.now()
    results = [
        {
            "timestamp": local_time(item.message.created_at, agent.timezone),
            "time_ago": _render_age(now - item.message.created_at),
            "role": item.message.role,
            "relevance": relevance(item.match) | {"search_mode": result.mode},
            **_render_content(item.message),
        }
        for item in result.found
    ]
    message = f"Showing {len(results)} results:" if results else "No results found."
    return json.dumps({"message": message, "results": results}, ensure_ascii=False)


def _render_content(row: Message) -> dict[str, str]:
    """What was said. Older agent types say it with a tool, and the text beside it is what they thought."""
    sent = "\n".join(sent_texts(row))
    return {"thinking": row.text, "content": sent} if sent else {"content": row.text}


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
            description="Search what was said before in all conversations, also what is no longer in view.",
            kind=ToolKind.CORE,
            parallel=True,
            parameters=parameters(
                [],
                query=string_schema("Words to look for; the newest messages if left out."),
                roles={
                    "type": "array",
                    "items": {"type": "string", "enum": [str(role) for role in _ROLES]},
                    "description": "Whose messages to look through; all if left out.",
                },
                limit={
                    "type": "integer",
                    "description": f"How many results at the most, up to {MAX_RESULTS}.",
                    "default": DEFAULT_RESULTS,
                },
                start_date=string_schema(
                    "Only what was said at this time or later: 2024-01-15 or 2024-01-15T14:30."
                ),
                end_date=string_schema(
                    "Only what was said up to this time; a date means its whole day."
                ),
            ),
        ),
        _search,
    ),
)
