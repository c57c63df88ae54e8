"""Tools: create, update, list, search. A tool's name is unique within its organization. The toolbox runs them."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct, structs

from holdfast.core import requirements, tool_search, tool_source
from holdfast.core.agents import Actor
from holdfast.core.ids import Kind
from holdfast.core.messages import ToolReturn
from holdfast.core.paging import Page
from holdfast.core.tool_search import ToolMatch
from holdfast.core.tool_source import ToolSchema
from holdfast.core.tools import Tool, ToolKind, ToolQuery
from holdfast.errors import AlreadyExists, InvalidArgument, ToolSourceInvalid
from holdfast.ports.services import Services
from holdfast.ports.store import Transaction
from holdfast.ports.toolbox import BuiltinSpec

LANGUAGE = "python"
# A search covers at most this many of an organization's tools, the newest ones.
MAX_SEARCHED = 5_000


class ToolForm(Struct, frozen=True, kw_only=True):
    """The input for creating or updating a tool. None leaves a stored value unchanged, or a new one at its default."""

    source_code: str | None = None
    source_type: str | None = None
    json_schema: dict[str, Any] | None = None
    args_json_schema: dict[str, Any] | None = None
    description: str | None = None
    tags: tuple[str, ...] | None = None
    return_char_limit: int | None = None
    default_requires_approval: bool | None = None
    enable_parallel_execution: bool | None = None
    pip_requirements: list[dict[str, Any]] | None = None
    npm_requirements: list[dict[str, Any]] | None = None
    metadata: dict[str, Any] | None = None


# Fields that are copied unchanged from the form to the tool.
_COPIED_FIELDS = (
    "source_code",
    "description",
    "tags",
    "return_char_limit",
    "default_requires_approval",
    "enable_parallel_execution",
    "pip_requirements",
    "npm_requirements",
    "metadata",
)


async def upsert(services: Services, actor: Actor, form: ToolForm) -> Tool:
    """Create the tool, or update the tool with the same name, which keeps its id (wire-v1 §2.5)."""
    schema = await _derive_schema(form, form.source_code or "")
    now = services.clock.now()

    def work(tx: Transaction) -> Tool:
        found = tx.tools.find(actor.organization_id, [schema.name])
        if found:
            return _save(tx, found[0], _apply_form(found[0], form, schema), actor, now)
        tool = _apply_form(_build_tool(services, actor, schema, now), form, schema)
        tx.tools.add(tool)
        return tool

    return await services.store.write(work)


async def retrieve(services: Services, actor: Actor, tool_id: str) -> Tool:
    return await services.store.read(lambda tx: tx.tools.get(actor.organization_id, tool_id))


async def list_page(services: Services, actor: Actor, query: ToolQuery) -> Sequence[Tool]:
    return await services.store.read(lambda tx: tx.tools.list(actor.organization_id, query))


async def count(services: Services, actor: Actor, query: ToolQuery) -> int:
    return await services.store.read(lambda tx: tx.tools.count(actor.organization_id, query))


async def search(
    services: Services, actor: Actor, query: ToolQuery, text: str, *, tags: Collection[str]
) -> list[ToolMatch]:
    """Search the tools that the query selects, best match first. With tags, only tools that have one of them."""
    everything = structs.replace(query, page=Page(limit=MAX_SEARCHED))
    tools = await list_page(services, actor, everything)
    matching = [tool for tool in tools if not tags or set(tags) & set(tool.tags)]
    # In a thread, since ranking thousands of texts would block the event loop.
    return await asyncio.to_thread(tool_search.search, matching, text, query.page.limit)


async def update(services: Services, actor: Actor, tool_id: str, form: ToolForm) -> Tool:
    """Update a tool. The schema is derived from a new source unless it is given as well."""
    before = await retrieve(services, actor, tool_id)
    schema = (
        await _derive_schema(form, form.source_code or before.source_code or "")
        if _defines_schema(form)
        else None
    )
    now = services.clock.now()

    def work(tx: Transaction) -> Tool:
        tool = tx.tools.get(actor.organization_id, tool_id)
        return _save(tx, tool, _apply_form(tool, form, schema), actor, now)

    return await services.store.write(work)


async def delete(services: Services, actor: Actor, tool_id: str) -> None:
    """Delete the tool and detach it from all agents."""

    def work(tx: Transaction) -> None:
        tx.tools.get(actor.organization_id, tool_id)
        tx.tools.delete(actor.organization_id, tool_id)

    await services.store.write(work)


async def add_builtin(services: Services, actor: Actor) -> list[Tool]:
    """Add the built-in tools of this version to the organization, and update those that it has."""
    specs = services.toolbox.builtin_tools()
    now = services.clock.now()

    def work(tx: Transaction) -> list[Tool]:
        names = [spec.name for spec in specs]
        known = {tool.name: tool for tool in tx.tools.find(actor.organization_id, names)}
        added = []
        for spec in specs:
            schema = ToolSchema(spec.name, spec.description, spec.parameters)
            stored = known.get(spec.name)
            current = _with_builtin_spec(
                stored or _build_tool(services, actor, schema, now), spec, schema
            )
            if stored is None:
                tx.tools.add(current)
            elif current != stored:
                tx.tools.save(structs.replace(current, updated_at=now))
            added.append(current)
        return added

    try:
        return await services.store.write(work)
    except AlreadyExists:
        # Another server has added them at the same moment.
        return await services.store.write(work)


async def run_source(
    services: Services,
    form: ToolForm,
    arguments: Mapping[str, Any],
    *,
    function: str | None = None,
    environment: Mapping[str, str],
) -> ToolReturn:
    """Run a tool's source without storing it."""
    source = form.source_code or ""
    name = function or (await _derive_schema(form, source)).name
    needs = requirements.parse_pip_requirements(form.pip_requirements)
    requirements.refuse_npm(form.npm_requirements)
    return await services.toolbox.run_source(source, name, arguments, environment, needs)


async def _derive_schema(form: ToolForm, source: str) -> ToolSchema:
    if form.source_type not in (None, LANGUAGE):
        raise ToolSourceInvalid(
            f"Tools are written in Python; source_type '{form.source_type}' cannot be run here."
        )
    # In a thread, since parsing a long source would block the event loop.
    if form.json_schema is not None:
        return await asyncio.to_thread(tool_source.with_schema, source, form.json_schema)
    if form.args_json_schema is not None:
        return await asyncio.to_thread(tool_source.with_parameters, source, form.args_json_schema)
    return await asyncio.to_thread(tool_source.derive_schema, source)


def _save(tx: Transaction, before: Tool, changed: Tool, actor: Actor, now: datetime) -> Tool:
    if changed == before:
        return before
    if changed.name != before.name and tx.tools.find(before.organization_id, [changed.name]):
        raise InvalidArgument(f"Tool with name '{changed.name}' already exists.")
    changed = structs.replace(changed, updated_at=now, last_updated_by_id=actor.user_id)
    tx.tools.save(changed)
    return changed


def _defines_schema(form: ToolForm) -> bool:
    work = (form.source_code, form.source_type, form.json_schema, form.args_json_schema)
    return any(value is not None for value in work)


def _build_tool(services: Services, actor: Actor, schema: ToolSchema, now: datetime) -> Tool:
    return Tool(
        id=services.ids.new_id(Kind.TOOL),
        organization_id=actor.organization_id,
        name=schema.name,
        description=schema.description,
        json_schema={},
        created_at=now,
        updated_at=now,
        source_type=LANGUAGE,
        created_by_id=actor.user_id,
        last_updated_by_id=actor.user_id,
    )


def _apply_form(tool: Tool, form: ToolForm, schema: ToolSchema | None) -> Tool:
    if tool.kind is not ToolKind.CUSTOM and _defines_schema(form):
        raise InvalidArgument(
            f"'{tool.name}' is a built-in tool: its source and schema cannot be changed. "
            "Give your own tool another name."
        )
    requirements.parse_pip_requirements(form.pip_requirements)
    requirements.refuse_npm(form.npm_requirements)
    values = {name: getattr(form, name) for name in _COPIED_FIELDS}
    changes = {name: value for name, value in values.items() if value is not None}
    if schema is not None:
        changes = {
            "name": schema.name,
            "description": schema.description,
            "json_schema": schema.as_json_schema(),
            "args_json_schema": form.args_json_schema,
        } | changes
    return structs.replace(tool, **changes)


def _with_builtin_spec(tool: Tool, spec: BuiltinSpec, schema: ToolSchema) -> Tool:
    if tool.kind is ToolKind.CUSTOM and tool.source_code is not None:
        # A custom tool that took this name before it became a built-in one stays as it is.
        return tool
    return structs.replace(
        tool,
        description=spec.description,
        json_schema=schema.as_json_schema(),
        kind=spec.kind,
        enable_parallel_execution=spec.parallel,
    )
