"""Built-in tools for the web (wire-v1 §7.3)."""

import json
from datetime import date

from holdfast.adapters.toolbox.arguments import (
    read_choice,
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
    string_list_schema,
    string_schema,
)
from holdfast.adapters.web.engines import CATEGORIES, SearchQuery
from holdfast.core.tools import ToolKind
from holdfast.errors import ToolError
from holdfast.ports.toolbox import BuiltinSpec, ToolContext

DEFAULT_RESULTS = 10
MAX_RESULTS = 100


async def _search(tool_services: ToolServices, context: ToolContext, arguments: Arguments) -> str:
    text = read_text(arguments, "query").strip()
    if not text:
        error = {"error": "Query cannot be empty", "query": str(arguments.get("query") or "")}
        return json.dumps(error, ensure_ascii=False)
    category = read_text(arguments, "category")
    query = SearchQuery(
        query=text,
        num_results=read_count(arguments, "num_results", DEFAULT_RESULTS, MAX_RESULTS),
        today=tool_services.services.clock.now().date(),
        category=read_choice(arguments, "category", CATEGORIES) if category else None,
        include_text=_read_switch(arguments, "include_text"),
        include_domains=read_strings(arguments, "include_domains"),
        exclude_domains=read_strings(arguments, "exclude_domains"),
        start_published_date=_read_day(arguments, "start_published_date"),
        end_published_date=_read_day(arguments, "end_published_date"),
        user_location=read_text(arguments, "user_location").upper() or None,
    )
    return await tool_services.search.search(query, context.environment)


def _read_switch(arguments: Arguments, name: str) -> bool:
    value = arguments.get(name)
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if value is not None and not isinstance(value, bool):
        raise ToolError(f"{name} must be true or false.")
    return bool(value)


def _read_day(arguments: Arguments, name: str) -> date | None:
    moment = read_date(arguments, name)
    return None if moment is None else moment.date()


async def _fetch(tool_services: ToolServices, context: ToolContext, arguments: Arguments) -> str:
    return await tool_services.pages.read(
        tool_services.services,
        tool_services.sandbox,
        context.organization_id,
        read_text(arguments, "url"),
        context.environment,
    )


WEB_TOOLS = (
    Builtin(
        BuiltinSpec(
            name="web_search",
            description="Search the web. Returns the pages that fit best, each with its title, address, and parts or a summary "
            "of its text. Filters that the search engine does not have are left out, and named in the result as `ignored`.",
            kind=ToolKind.BUILTIN,
            parallel=True,
            parameters=parameters(
                ["query"],
                query=string_schema("What to look for."),
                num_results={
                    "type": "integer",
                    "description": f"How many results at the most, up to {MAX_RESULTS}.",
                    "default": DEFAULT_RESULTS,
                },
                category={
                    "type": "string",
                    "enum": list(CATEGORIES),
                    "description": "Only pages of this kind.",
                },
                include_text={
                    "type": "boolean",
                    "description": "Whether to return the text of each page as well.",
                    "default": False,
                },
                include_domains=string_list_schema("Only pages of these domains."),
                exclude_domains=string_list_schema("No pages of these domains."),
                start_published_date=string_schema(
                    "Only pages that were published on this day or later: 2024-01-15."
                ),
                end_published_date=string_schema(
                    "Only pages that were published up to this day: 2024-01-15."
                ),
                user_location=string_schema(
                    "The country to search for, as two letters of ISO 3166: DE."
                ),
            ),
        ),
        _search,
    ),
    Builtin(
        BuiltinSpec(
            name="fetch_webpage",
            description="Read one page of the web. Returns its text as Markdown, with the addresses of its links.",
            kind=ToolKind.BUILTIN,
            parallel=True,
            parameters=parameters(
                ["url"],
                url=string_schema("The address of the page, beginning with http:// or https://."),
            ),
        ),
        _fetch,
    ),
)
