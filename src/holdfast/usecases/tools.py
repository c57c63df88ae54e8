"""Tools: create, update, list, search. A tool's name is unique within its organization. The toolbox runs them."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec import structs

from holdfast.core import requirements, tool_rules, tool_search, tool_source
from holdfast.core.agents import Actor
from holdfast.core.ids import Kind
from holdfast.core.messages import ToolReturn
from holdfast.core.paging import Page
from holdfast.core.tool_search import ToolMatch
from holdfast.core.tool_source import ToolSchema
from holdfast.core.tools import Tool, ToolKind, ToolQuery
from holdfast.errors import AlreadyExists, InvalidArgument
from holdfast.ports.services import Services
from holdfast.ports.store import Transaction
from holdfast.ports.toolbox import BuiltinSpec
from holdfast.usecases import tool_forms
from holdfast.usecases.tool_forms import ToolForm

# A search covers at most this many of an organization's tools, the newest ones.
MAX_SEARCHED = 5_000


async def upsert(services: Services, actor: Actor, form: ToolForm) -> Tool:
    """Create the tool, or update the tool with the same name, which keeps its id (wire-v1 §2.5)."""
    schema = await _derive_schema(form, form.source_code or "")
    now = services.clock.now()

    def work(tx: Transaction) -> Tool:
        found = tx.tools.find(actor.organization_id, [schema.name])
        if found:
            return _save(tx, found[0], tool_forms.apply(found[0], form, schema), actor, now)
        tool = tool_forms.apply(_build_tool(services, actor, schema, now), form, schema)
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
    """Update a tool. The schema is derived from a new source unless it is given as well. A new name is a new name in the
    rules of the agents that have the tool, too (wire-v1 §2.5)."""
    before = await retrieve(services, actor, tool_id)
    # In a thread, since parsing a long source would block the event loop.
    schema = await asyncio.to_thread(tool_forms.build_new_schema, before, form)
    now = services.clock.now()

    def work(tx: Transaction) -> Tool:
        tool = tx.tools.get(actor.organization_id, tool_id)
        return _save(tx, tool, tool_forms.apply(tool, form, schema), actor, now)

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
    tool_forms.check_language(form)
    # In a thread, since parsing a long source would block the event loop.
    if form.json_schema is not None:
        return await asyncio.to_thread(tool_source.with_schema, source, form.json_schema)
    if form.args_json_schema is not None:
        return await asyncio.to_thread(tool_source.with_parameters, source, form.args_json_schema)
    return await asyncio.to_thread(tool_source.derive_schema, source)


def _save(tx: Transaction, before: Tool, changed: Tool, actor: Actor, now: datetime) -> Tool:
    if changed == before:
        return before
    changed = structs.replace(changed, updated_at=now, last_updated_by_id=actor.user_id)
    if changed.name != before.name:
        _refuse_taken_name(tx, changed)
        _rename_in_rules(tx, before, changed)
    tx.tools.save(changed)
    return changed


def _refuse_taken_name(tx: Transaction, tool: Tool) -> None:
    if tx.tools.find(tool.organization_id, [tool.name]):
        raise InvalidArgument(
            f"INVALID_ARGUMENT: Tool with name '{tool.name}' already exists in your organization"
        )


def _rename_in_rules(tx: Transaction, before: Tool, tool: Tool) -> None:
    """Let the rules of the agents that have the tool name it as it is named now."""
    for agent in tx.agents.lock_holders(tool.id, naming=before.name):
        rules = tool_rules.rename_tool(agent.tool_rules, before.name, tool.name)
        if rules != agent.tool_rules:
            changes = {"updated_at": tool.updated_at, "last_updated_by_id": tool.last_updated_by_id}
            tx.agents.save(structs.replace(agent, tool_rules=rules, **changes))


def _build_tool(services: Services, actor: Actor, schema: ToolSchema, now: datetime) -> Tool:
    return Tool(
        id=services.ids.new_id(Kind.TOOL),
        organization_id=actor.organization_id,
        name=schema.name,
        description=schema.description,
        json_schema={},
        created_at=now,
        updated_at=now,
        source_type=tool_forms.LANGUAGE,
        created_by_id=actor.user_id,
        last_updated_by_id=actor.user_id,
    )


def _with_builtin_spec(tool: Tool, spec: BuiltinSpec, schema: ToolSchema) -> Tool:
    is_custom = tool.kind is ToolKind.CUSTOM and tool.source_code is not None
    if is_custom or tool.kind is ToolKind.MCP:
        # A tool that took this name before it became a built-in one stays as it is.
        return tool
    return structs.replace(
        tool,
        description=spec.description,
        json_schema=schema.as_json_schema(),
        kind=spec.kind,
        enable_parallel_execution=spec.parallel,
    )
