"""Agents: create, retrieve, list, update, delete. Their tools and blocks are in ``agent_relations``."""

from collections.abc import Callable, Collection, Mapping, Sequence

from msgspec import structs

from holdfast import system_message
from holdfast.core import context, tool_rules
from holdfast.core.agents import Actor, Agent, AgentProperties, AgentQuery, Secret
from holdfast.core.blocks import Block
from holdfast.core.ids import Kind
from holdfast.core.messages import Message, Role, Text, default_thread_id
from holdfast.core.paging import Page
from holdfast.core.system_prompt import DEFAULT_SYSTEM
from holdfast.core.threads import Thread
from holdfast.core.tools import Tool, ToolQuery
from holdfast.errors import NotFound
from holdfast.ports.model import Catalogue
from holdfast.ports.services import Services
from holdfast.ports.store import Transaction
from holdfast.usecases import (
    agent_context,
    agent_files,
    agent_names,
    blocks,
    deletion,
    embedding_choice,
    identity_links,
    model_choice,
    providers,
    tools,
)
from holdfast.usecases.agent_files import FileToolsMissing
from holdfast.usecases.agent_forms import (
    AgentChanges,
    NewAgent,
    check_file_limits,
    check_name,
    check_secrets,
    check_timezone,
)
from holdfast.usecases.agent_views import (
    DEFAULT_RELATIONS,
    AgentView,
    Relation,
    load_view,
    load_views,
)
from holdfast.usecases.identity_links import IdentityView
from holdfast.usecases.messages import MessageInput

BASE_TOOLS = ("conversation_search", "memory_insert", "memory_replace")
MULTI_AGENT_TOOLS = (
    "send_message_to_agent_and_wait_for_reply",
    "send_message_to_agents_matching_tags",
    "send_message_to_agent_async",
)

# Fields that are copied unchanged from the input of a create or an update to the agent.
_COPIED_FIELDS = (
    *AgentProperties.__struct_fields__,
    "tool_rules",
    "timezone",
    "message_buffer_autoclear",
)


class _BaseToolsMissing(Exception):
    """The organization does not have its built-in tools yet."""


async def create(services: Services, actor: Actor, new: NewAgent) -> AgentView:
    """Store the agent with its default thread, system message, blocks and links in one transaction."""
    catalogue = await providers.catalogue_for(services, actor, new.model.handle)
    await model_choice.prepare(catalogue, new.model)
    agent = _build_agent(services, catalogue, actor, new)
    embedding = await embedding_choice.choose(
        services, new.embedding, new.embedding_config, chunk_size=new.embedding_chunk_size
    )
    agent = structs.replace(agent, embedding=embedding.handle, embedding_config=embedding.config)
    made = tuple(blocks.build(services, actor, item) for item in new.new_blocks)
    try:
        view = await services.store.write(lambda tx: _store_agent(tx, services, agent, new, made))
    except (_BaseToolsMissing, FileToolsMissing):
        await tools.add_builtin(services, actor)
        view = await services.store.write(
            lambda tx: _store_agent(tx, services, agent, new, made, require_base_tools=False)
        )
    return embedding_choice.with_warnings(services, view)


async def retrieve(
    services: Services,
    actor: Actor,
    agent_id: str,
    relations: Collection[Relation] = DEFAULT_RELATIONS,
) -> AgentView:
    view = await services.store.read(
        lambda tx: load_view(tx, tx.agents.get(actor.organization_id, agent_id), relations)
    )
    return embedding_choice.with_warnings(services, view)


async def list_page(
    services: Services,
    actor: Actor,
    query: AgentQuery,
    relations: Collection[Relation] = (),
    *,
    check: Callable[[Transaction], object] | None = None,
) -> list[AgentView]:
    """``check`` comes first: it raises NotFound if what the agents are listed for does not exist."""

    def work(tx: Transaction) -> list[AgentView]:
        if check is not None:
            check(tx)
        return load_views(tx, tx.agents.list(actor.organization_id, query), relations)

    views = await services.store.read(work)
    return [embedding_choice.with_warnings(services, view) for view in views]


async def list_with_block(
    services: Services,
    actor: Actor,
    block_id: str,
    page: Page,
    relations: Collection[Relation] = (),
) -> list[AgentView]:
    """The agents that the block is attached to."""
    return await list_page(
        services,
        actor,
        AgentQuery(page=page, block_id=block_id, show_hidden=True),
        relations,
        check=lambda tx: tx.blocks.get(actor.organization_id, block_id),
    )


async def count(services: Services, actor: Actor, query: AgentQuery) -> int:
    return await services.store.read(lambda tx: tx.agents.count(actor.organization_id, query))


async def delete(services: Services, actor: Actor, agent_id: str) -> None:
    """Delete the agent with its threads and runs. Its blocks and tools stay, since other agents may use them."""
    await deletion.delete_history(services, actor, agent_id)
    await services.store.write(lambda tx: tx.agents.delete(actor.organization_id, agent_id))


async def update(
    services: Services, actor: Actor, agent_id: str, changes: AgentChanges
) -> AgentView:
    """Update the agent. The stored system message does not change; recompile or reset rewrites it (wire-v1 §2.2.2)."""
    if changes.name is not None:
        check_name(changes.name)
    if changes.timezone is not None:
        check_timezone(changes.timezone)
    check_secrets(changes.secrets or {})
    check_file_limits(changes)
    if changes.embedding is not None or changes.embedding_config is not None:
        embedding = await embedding_choice.choose(
            services, changes.embedding, changes.embedding_config
        )
        changes = structs.replace(
            changes, embedding=embedding.handle, embedding_config=embedding.config
        )
    catalogue = await providers.catalogue_for(services, actor, changes.model.handle)
    await model_choice.prepare(catalogue, changes.model)

    def work(tx: Transaction) -> AgentView:
        agent = tx.agents.get_for_update(actor.organization_id, agent_id)
        handle = changes.model.handle or agent.model.handle
        catalogue = providers.find_catalogue(tx, services, actor.organization_id, handle)
        changed = _apply_changes(services, catalogue, actor, agent, changes)
        changed = _replace_tools(tx, changed, changes)
        tx.agents.save(changed)
        _replace_relations(tx, services, agent, changes)
        changed = _replace_folders(tx, services, changed, changes)
        changed = _set_last_run(tx, changed, changes)
        return load_view(tx, changed)

    try:
        view = await services.store.write(work)
    except FileToolsMissing:
        await tools.add_builtin(services, actor)
        view = await services.store.write(work)
    return embedding_choice.with_warnings(services, view)


def _build_agent(services: Services, catalogue: Catalogue, actor: Actor, new: NewAgent) -> Agent:
    name = agent_names.make_name(_random_number(services)) if new.name is None else new.name
    check_name(name)
    check_timezone(new.timezone)
    check_secrets(new.secrets)
    check_file_limits(new)
    model = model_choice.choose(catalogue, new.model)
    files, characters = context.file_limits(model.context_window)
    now = services.clock.now()
    agent = Agent(
        id=services.ids.new_id(Kind.AGENT),
        organization_id=actor.organization_id,
        name=name,
        system=DEFAULT_SYSTEM if new.system is None else new.system,
        model=model,
        created_at=now,
        updated_at=now,
        created_by_id=actor.user_id,
        last_updated_by_id=actor.user_id,
        **{field: getattr(new, field) for field in _COPIED_FIELDS},
    )
    return structs.replace(
        agent,
        tool_rules=tool_rules.without_duplicates(new.tool_rules),
        compaction_settings=context.compaction_settings(
            catalogue.summary_handle(model.handle), new.compaction_settings
        ),
        # 0 is a choice: no file is ever opened (memory-v1 §5.7).
        max_files_open=files if new.max_files_open is None else new.max_files_open,
        per_file_view_window_char_limit=new.per_file_view_window_char_limit or characters,
    )


def _random_number(services: Services) -> int:
    return int(services.ids.new_otid().replace("-", ""), 16)


def _store_agent(
    tx: Transaction,
    services: Services,
    agent: Agent,
    new: NewAgent,
    new_blocks: tuple[Block, ...],
    *,
    require_base_tools: bool = True,
) -> AgentView:
    wanted = _find_tools(tx, agent.organization_id, new, require_base_tools=require_base_tools)
    agent = structs.replace(agent, tool_rules=_build_rules(agent, new, wanted))
    found = tx.blocks.find(agent.organization_id, new.block_ids)
    held = (*new_blocks, *found)
    tags = tuple(sorted(set(new.tags)))
    secrets = _build_secrets(services, new.secrets, ())

    tx.agents.add(agent)
    tx.threads.add(_build_default_thread(agent))
    tx.blocks.add(*new_blocks)
    if held:
        tx.agents.attach_blocks(agent.id, [block.id for block in held])
    if wanted:
        tx.agents.attach_tools(agent.id, [tool.id for tool in wanted])
    if tags:
        tx.agents.set_tags(agent.id, tags)
    if secrets:
        tx.agents.set_secrets(agent.id, secrets)
    identities: tuple[IdentityView, ...] = ()
    if new.identity_ids:
        identities = identity_links.replace_of_agent(tx, agent, new.identity_ids, agent.created_at)
    rows = tx.messages.append(_build_first_messages(services, agent, held, new.initial_messages))
    if new.folder_ids or new.default_folder:
        return load_view(tx, _attach_folders(tx, services, agent, new))
    return AgentView(
        agent=agent,
        message_ids=tuple(row.id for row in rows),
        tools=tuple(wanted),
        blocks=held,
        tags=tags,
        secrets=secrets,
        identities=identities,
    )


def _attach_folders(tx: Transaction, services: Services, agent: Agent, new: NewAgent) -> Agent:
    agent = agent_files.attach(tx, services, agent, new.folder_ids)
    if new.default_folder:
        agent = agent_files.attach_default_folder(tx, services, agent)
    return agent


def _find_tools(
    tx: Transaction, organization_id: str, new: NewAgent, *, require_base_tools: bool
) -> list[Tool]:
    """The tools of a new agent: first those given by name, then those given by id, each once."""
    base = (
        *(BASE_TOOLS if new.base_tools else ()),
        *(MULTI_AGENT_TOOLS if new.multi_agent_tools else ()),
    )
    names = tuple(dict.fromkeys((*base, *new.tool_names)))
    by_name = {tool.name: tool for tool in tx.tools.find(organization_id, names)} if names else {}
    if require_base_tools and not by_name.keys() >= set(base):
        raise _BaseToolsMissing
    unknown = [name for name in new.tool_names if name not in by_name]
    if unknown:
        raise NotFound(f"Tool with name {unknown[0]} not found")
    by_id = _find_tools_by_id(tx, organization_id, new.tool_ids)
    wanted = [by_name[name] for name in names if name in by_name] + by_id
    return list({tool.id: tool for tool in wanted}.values())


def _find_tools_by_id(tx: Transaction, organization_id: str, tool_ids: Sequence[str]) -> list[Tool]:
    if not tool_ids:
        return []
    query = ToolQuery(page=Page(limit=len(tool_ids)), tool_ids=tuple(tool_ids))
    found = {tool.id: tool for tool in tx.tools.list(organization_id, query)}
    unknown = [tool_id for tool_id in tool_ids if tool_id not in found]
    if unknown:
        raise NotFound(f"Tool with ID {unknown[0]} not found")
    return [found[tool_id] for tool_id in tool_ids]


def _build_rules(
    agent: Agent, new: NewAgent, attached: Sequence[Tool]
) -> tuple[tool_rules.ToolRule, ...]:
    """The caller's rules, then those for V1's own tools, then those of tools that require approval (wire-v1 §2.2.1)."""
    rules = agent.tool_rules
    if new.base_tool_rules:
        rules = tool_rules.with_base_rules(rules, attached)
    return _with_approvals(rules, attached)


def _with_approvals(
    rules: tuple[tool_rules.ToolRule, ...], attached: Sequence[Tool]
) -> tuple[tool_rules.ToolRule, ...]:
    needing_approval = [tool.name for tool in attached if tool.default_requires_approval]
    return tool_rules.with_approvals(rules, needing_approval)


def _build_default_thread(agent: Agent) -> Thread:
    return Thread(
        id=default_thread_id(agent.id),
        organization_id=agent.organization_id,
        agent_id=agent.id,
        created_at=agent.created_at,
        updated_at=agent.created_at,
        created_by_id=agent.created_by_id,
        last_updated_by_id=agent.created_by_id,
    )


def _build_first_messages(
    services: Services,
    agent: Agent,
    attached: tuple[Block, ...],
    initial_messages: Sequence[MessageInput],
) -> list[Message]:
    text = system_message.compile_first(agent, attached, agent.created_at)
    first = MessageInput(role=Role.SYSTEM, content=(Text(text),))
    return [
        Message(
            id=services.ids.new_id(Kind.MESSAGE),
            agent_id=agent.id,
            thread_id=default_thread_id(agent.id),
            role=item.role,
            created_at=agent.created_at,
            content=item.content,
            otid=item.otid or services.ids.new_otid(),
            name=item.name,
            sender_id=item.sender_id,
            group_id=item.group_id,
        )
        for item in (first, *initial_messages)
    ]


def _build_secrets(
    services: Services, values: Mapping[str, str], known: Sequence[Secret]
) -> tuple[Secret, ...]:
    """Build secrets from the variables; a variable that exists already keeps its id."""
    before = {secret.key: secret for secret in known}
    return tuple(
        structs.replace(before[key], value=value)
        if key in before
        else Secret(id=services.ids.new_id(Kind.AGENT_SECRET), key=key, value=value)
        for key, value in values.items()
    )


def _apply_changes(
    services: Services, catalogue: Catalogue, actor: Actor, agent: Agent, changes: AgentChanges
) -> Agent:
    given = {
        field: getattr(changes, field)
        for field in ("name", "system", *_COPIED_FIELDS)
        if getattr(changes, field) is not None
    }
    if changes.tool_rules is not None:
        given["tool_rules"] = tool_rules.without_duplicates(changes.tool_rules)
    model = model_choice.change(catalogue, agent.model, changes.model)
    compaction = context.update_compaction_settings(
        agent.compaction_settings,
        changes.compaction_settings,
        summary_handle=catalogue.summary_handle(agent.model.handle),
        new_summary_handle=catalogue.summary_handle(model.handle),
    )
    return structs.replace(
        agent,
        model=model,
        compaction_settings=compaction,
        updated_at=services.clock.now(),
        last_updated_by_id=actor.user_id,
        **given,
    )


def _replace_tools(tx: Transaction, agent: Agent, changes: AgentChanges) -> Agent:
    """The agent after its tools were replaced. A tool that is new to it brings its approval rule, as when it is attached."""
    if changes.tool_ids is None:
        return agent
    found = _find_tools_by_id(tx, agent.organization_id, changes.tool_ids)
    attached = {tool.id for tool in tx.agents.tools([agent.id]).get(agent.id, ())}
    tx.agents.detach_tools(agent.id, attached - set(changes.tool_ids))
    tx.agents.attach_tools(agent.id, [tool.id for tool in found])
    new = [tool for tool in found if tool.id not in attached]
    return structs.replace(agent, tool_rules=_with_approvals(agent.tool_rules, new))


def _replace_relations(
    tx: Transaction, services: Services, agent: Agent, changes: AgentChanges
) -> None:
    if changes.block_ids is not None:
        kept = {block.id for block in tx.blocks.find(agent.organization_id, changes.block_ids)}
        held = {block.id for block in tx.agents.blocks([agent.id]).get(agent.id, ())}
        tx.agents.detach_blocks(agent.id, held - kept)
        tx.agents.attach_blocks(agent.id, changes.block_ids)
    if changes.tags is not None:
        tx.agents.set_tags(agent.id, sorted(set(changes.tags)))
    if changes.secrets is not None:
        known = tx.agents.secrets([agent.id]).get(agent.id, ())
        tx.agents.set_secrets(agent.id, _build_secrets(services, changes.secrets, known))
    if changes.identity_ids is not None:
        identity_links.replace_of_agent(tx, agent, changes.identity_ids, services.clock.now())
    if changes.message_ids is not None:
        agent_context.set_context(tx, agent, changes.message_ids)


def _replace_folders(
    tx: Transaction, services: Services, agent: Agent, changes: AgentChanges
) -> Agent:
    if changes.max_files_open is not None or changes.per_file_view_window_char_limit is not None:
        agent_files.apply_limits(tx, agent)
    if changes.folder_ids is None:
        return agent
    return agent_files.replace_folders(tx, services, agent, changes.folder_ids)


def _set_last_run(tx: Transaction, agent: Agent, changes: AgentChanges) -> Agent:
    """Apply a caller's correction to the last-run fields, which the engine writes (wire-v1 §2.2.2)."""
    given = {
        field: getattr(changes, field)
        for field in ("last_stop_reason", "last_run_completion", "last_run_duration_ms")
        if getattr(changes, field) is not None
    }
    if not given:
        return agent
    agent = structs.replace(agent, **given)
    tx.agents.set_last_run(
        agent.id,
        stop_reason=agent.last_stop_reason,
        completed_at=agent.last_run_completion,
        duration_ms=agent.last_run_duration_ms,
    )
    return agent
