"""Built-in tools with which an agent stores passages in its archives and finds them again (wire-v1 §7.3)."""

import json
from typing import Any

from holdfast.adapters.toolbox.arguments import (
    read_choices,
    read_count,
    read_date,
    read_strings,
    read_text,
)
from holdfast.adapters.toolbox.specs import (
    Arguments,
    Builtin,
    ToolServices,
    parameters,
    relevance,
    string_list_schema,
    string_schema,
    tool_actor,
)
from holdfast.core.passages import FoundPassage
from holdfast.core.system_prompt import local_time
from holdfast.core.tools import ToolKind
from holdfast.ports.toolbox import BuiltinSpec, ToolContext
from holdfast.usecases import archive_search, passages
from holdfast.usecases.archive_search import ArchiveSearch
from holdfast.usecases.passages import NewPassage

DEFAULT_RESULTS = 10
MAX_RESULTS = 50

_ANY, _ALL = "any", "all"


async def _insert(tool_services: ToolServices, context: ToolContext, arguments: Arguments) -> str:
    item = NewPassage(
        text=read_text(arguments, "content"),
        tags=read_strings(arguments, "tags"),
        run_id=context.run_id,
        step_id=context.step_id,
        thread_id=context.thread_id,
    )
    stored = await passages.insert_for_agent(
        tool_services.services, tool_actor(context), context.agent_id, item
    )
    return f"Stored as {stored.passage.id}."


async def _search(tool_services: ToolServices, context: ToolContext, arguments: Arguments) -> str:
    (match_mode,) = read_choices(arguments, "tag_match_mode", (_ANY, _ALL), (_ANY,))
    wanted = ArchiveSearch(
        query=read_text(arguments, "query"),
        limit=read_count(arguments, "top_k", DEFAULT_RESULTS, MAX_RESULTS),
        tags=read_strings(arguments, "tags"),
        match_all_tags=match_mode == _ALL,
        since=read_date(arguments, "start_datetime"),
        until=read_date(arguments, "end_datetime"),
    )
    done = await archive_search.search_agent(
        tool_services.services, tool_actor(context), context.agent_id, wanted
    )
    results = [_render(item, done.agent.timezone) for item in done.result.found]
    return json.dumps(results, ensure_ascii=False)


def _render(item: FoundPassage, timezone: str) -> dict[str, Any]:
    passage = item.passage
    return {
        "id": passage.id,
        "timestamp": local_time(passage.created_at, timezone),
        "content": passage.text,
        "tags": list(passage.tags),
        "relevance": relevance(item.match),
    }


ARCHIVAL_TOOLS = (
    Builtin(
        BuiltinSpec(
            name="archival_memory_insert",
            description="Store a fact in your archival memory, which keeps it for good and is searched by meaning. Store "
            "facts that can be understood by themselves, with names and dates, and add tags. Returns the id of "
            "the memory.",
            kind=ToolKind.CORE,
            parameters=parameters(
                ["content"],
                content=string_schema("What to remember."),
                tags=string_list_schema("Tags, by which it can be found again."),
            ),
        ),
        _insert,
    ),
    Builtin(
        BuiltinSpec(
            name="archival_memory_search",
            description="Search your archival memory. Returns the memories that fit best, each with its time and tags.",
            kind=ToolKind.CORE,
            parallel=True,
            parameters=parameters(
                ["query"],
                query=string_schema("What to look for."),
                tags=string_list_schema("Only memories with these tags."),
                tag_match_mode={
                    "type": "string",
                    "enum": [_ANY, _ALL],
                    "description": "Whether a memory must have any of the tags or all of them.",
                    "default": _ANY,
                },
                top_k={
                    "type": "integer",
                    "description": f"How many results at the most, up to {MAX_RESULTS}.",
                    "default": DEFAULT_RESULTS,
                },
                start_datetime=string_schema(
                    "Only memories of this time or later: 2024-01-15 or 2024-01-15T14:30."
                ),
                end_datetime=string_schema(
                    "Only memories up to this time; a date means its whole day."
                ),
            ),
        ),
        _search,
    ),
)
