"""The folders and files of an agent: attach, detach, open, close. What changes them marks the agent's system messages as
stale, in the same transaction."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from holdfast import system_message
from holdfast.core import tool_rules
from holdfast.core.agent_files import (
    AttachedFile,
    FileView,
    choose_evicted,
    default_folder_name,
    files_open_limit,
    view_limit,
)
from holdfast.core.agents import Actor, Agent
from holdfast.core.files import FILE_TOOLS, AgentFile, File, Folder
from holdfast.core.ids import Kind
from holdfast.core.paging import Page
from holdfast.errors import InvalidArgument
from holdfast.ports.services import Services
from holdfast.ports.store import Transaction
from holdfast.usecases import tools
from holdfast.usecases.agent_views import AgentView, load_view

# The lines that an agent sees of a file: the first and the last one; None: from the beginning, to the end.
LineRange = tuple[int | None, int | None]
WHOLE_FILE: LineRange = (None, None)

# More would exceed what a database accepts in one query.
_AGENTS_AT_ONCE = 500


class FileToolsMissing(Exception):
    """The organization does not have the tools for files yet."""


class FilePage(Struct, frozen=True):
    views: Sequence[FileView]
    has_more: bool


class Closed(Struct, frozen=True):
    """The names of the files that were closed when others were opened: because the caller wanted it, or to make room."""

    on_request: Sequence[str] = ()
    evicted: Sequence[str] = ()


async def list_folders(
    services: Services, actor: Actor, agent_id: str, page: Page
) -> Sequence[Folder]:
    def work(tx: Transaction) -> Sequence[Folder]:
        tx.agents.get(actor.organization_id, agent_id)
        return tx.agent_files.page_of_folders(actor.organization_id, agent_id, page)

    return await services.store.read(work)


async def attach_folder(
    services: Services, actor: Actor, agent_id: str, folder_id: str
) -> AgentView:
    """Attach the folder with its files, and the tools for files. It is no error if it is attached already."""

    def work(tx: Transaction) -> AgentView:
        agent = tx.agents.get(actor.organization_id, agent_id)
        return load_view(tx, attach(tx, services, agent, [folder_id]))

    try:
        return await services.store.write(work)
    except FileToolsMissing:
        await tools.add_builtin(services, actor)
    return await services.store.write(work)


async def detach_folder(
    services: Services, actor: Actor, agent_id: str, folder_id: str
) -> AgentView:
    """Detach the folder with its files; with the last one go the tools for files. It is no error if it is not attached."""

    def work(tx: Transaction) -> AgentView:
        agent = tx.agents.get(actor.organization_id, agent_id)
        tx.folders.get(actor.organization_id, folder_id)
        detach(tx, agent, [folder_id])
        return load_view(tx, agent)

    return await services.store.write(work)


async def list_files(
    services: Services, actor: Actor, agent_id: str, page: Page, *, is_open: bool | None
) -> FilePage:
    """One page of the agent's files, with what it sees of them."""
    goes_back = page.before is not None and page.after is None

    def work(tx: Transaction) -> FilePage:
        agent = tx.agents.get(actor.organization_id, agent_id)
        # One more shows whether there is a next page.
        found = tx.agent_files.page(agent_id, replace(page, limit=page.limit + 1), is_open=is_open)
        shown = found[-page.limit :] if goes_back else found[: page.limit]
        views = [system_message.load_file_view(tx, item, view_limit(agent)) for item in shown]
        return FilePage(views, has_more=len(found) > page.limit)

    return await services.store.read(work)


async def open_file(services: Services, actor: Actor, agent_id: str, file_id: str) -> Sequence[str]:
    """Open the whole file; return the names of the files that were closed for it."""

    def work(tx: Transaction) -> Sequence[str]:
        tx.agent_files.lock([agent_id])
        agent = tx.agents.get(actor.organization_id, agent_id)
        wanted = tx.agent_files.get(agent_id, file_id)
        if not files_open_limit(agent):
            raise InvalidArgument(
                f"{wanted.name} cannot be opened: max_files_open of the agent is 0."
            )
        files = tx.agent_files.list_of_agents([agent_id])[agent_id]
        opened = {wanted.file.id: WHOLE_FILE}
        return open_ranges(tx, agent, files, opened, services.clock.now()).evicted

    return await services.store.write(work)


async def close_file(services: Services, actor: Actor, agent_id: str, file_id: str) -> None:
    def work(tx: Transaction) -> None:
        tx.agent_files.lock([agent_id])
        tx.agents.get(actor.organization_id, agent_id)
        attached = tx.agent_files.get(agent_id, file_id)
        if attached.state.is_open:
            _close(tx, agent_id, [attached.state])

    await services.store.write(work)


async def close_all(services: Services, actor: Actor, agent_id: str) -> Sequence[str]:
    """Close all open files; return their names."""

    def work(tx: Transaction) -> Sequence[str]:
        tx.agent_files.lock([agent_id])
        tx.agents.get(actor.organization_id, agent_id)
        files = tx.agent_files.list_of_agents([agent_id])[agent_id]
        is_open = [item for item in files if item.state.is_open]
        _close(tx, agent_id, [item.state for item in is_open])
        return [item.name for item in is_open]

    return await services.store.write(work)


async def touch(services: Services, agent_id: str, file_ids: Collection[str]) -> None:
    """Record that the agent has just used these files: others are closed before them."""
    if file_ids:
        now = services.clock.now()
        await services.store.write(lambda tx: tx.agent_files.touch(agent_id, file_ids, now))


def attach(tx: Transaction, services: Services, agent: Agent, folder_ids: Sequence[str]) -> Agent:
    """Attach these folders with their files, and the tools for files. Return the agent, which may have new tool rules."""
    if not folder_ids:
        return agent
    now = services.clock.now()
    # In one order everywhere, folders before agents, so that two transactions do not wait for each other.
    for folder_id in sorted(set(folder_ids)):
        tx.folders.lock(agent.organization_id, folder_id)
    tx.agent_files.lock([agent.id])
    for folder_id in dict.fromkeys(folder_ids):
        tx.agent_files.attach_folder(agent.id, folder_id, now)
        known = tx.agent_files.linked_ids(agent.id, folder_id)
        files = tx.files.list_of_folders([folder_id])
        # A file without text is linked when it has one, by ``open_in_agents``.
        new = [file for file in files if file.total_chunks is not None and file.id not in known]
        _link_files(tx, services, agent, new, now)
    tx.stale_prompts.mark([agent.id])
    return _attach_tools(tx, agent)


def attach_default_folder(tx: Transaction, services: Services, agent: Agent) -> Agent:
    """Attach a new, empty folder that is named after the agent."""
    name = default_folder_name(agent.name)
    if tx.folders.find_by_name(agent.organization_id, name) is not None:
        # Names of folders are unique, those of agents are not.
        name = f"{name} ({agent.id})"
    folder = Folder(
        id=services.ids.new_id(Kind.SOURCE),
        organization_id=agent.organization_id,
        name=name,
        embedding=agent.embedding,
        embedding_config=agent.embedding_config,
        created_at=agent.created_at,
        updated_at=agent.created_at,
        created_by_id=agent.created_by_id,
        last_updated_by_id=agent.created_by_id,
    )
    tx.folders.add(folder)
    return attach(tx, services, agent, [folder.id])


def detach(tx: Transaction, agent: Agent, folder_ids: Iterable[str]) -> None:
    """Detach these folders with their files; with the last one go the tools for files."""
    tx.agent_files.lock([agent.id])
    detached = [tx.agent_files.detach_folder(agent.id, folder_id) for folder_id in folder_ids]
    if any(detached):
        release_agents(tx, agent.organization_id, [agent.id])


def replace_folders(
    tx: Transaction, services: Services, agent: Agent, folder_ids: Sequence[str]
) -> Agent:
    """Attach exactly these folders. NotFound if one of them does not exist."""
    tx.folders.find(agent.organization_id, folder_ids)
    attached = {folder.id for folder in tx.agent_files.folders([agent.id])[agent.id]}
    agent = attach(tx, services, agent, [each for each in folder_ids if each not in attached])
    detach(tx, agent, sorted(attached - set(folder_ids)))
    return agent


def apply_limits(tx: Transaction, agent: Agent) -> None:
    """Close files until no more are open than the agent may have now. Its system messages show the new limits."""
    tx.agent_files.lock([agent.id])
    is_open = tx.agent_files.list_open(agent.id)
    _close(tx, agent.id, choose_evicted(is_open, (), files_open_limit(agent)))
    if tx.agent_files.folders([agent.id])[agent.id]:
        tx.stale_prompts.mark([agent.id])


def release_agents(tx: Transaction, organization_id: str, agent_ids: Sequence[str]) -> None:
    """After folders were detached from these agents: those without a folder lose the tools for files."""
    folders = tx.agent_files.folders(agent_ids)
    tool_ids = [tool.id for tool in tx.tools.find(organization_id, FILE_TOOLS)]
    for agent_id in agent_ids:
        if not folders[agent_id]:
            tx.agents.detach_tools(agent_id, tool_ids)
    tx.stale_prompts.mark(agent_ids)


def delete_folder(tx: Transaction, organization_id: str, folder_id: str, now: datetime) -> None:
    """Delete the folder with its files, also from the agents that have it."""
    tx.folders.lock(organization_id, folder_id)
    agent_ids = tx.folders.agent_ids(folder_id)
    tx.folders.delete(organization_id, folder_id, now)
    for start in range(0, len(agent_ids), _AGENTS_AT_ONCE):
        some = agent_ids[start : start + _AGENTS_AT_ONCE]
        tx.agent_files.lock(some)
        release_agents(tx, organization_id, some)


def mark_folder(tx: Transaction, folder_id: str) -> None:
    """Mark the system messages that show the folder as stale: its name or its instructions are new."""
    _mark(tx, tx.folders.agent_ids(folder_id))


def delete_file(tx: Transaction, organization_id: str, file_id: str) -> None:
    """Delete the file, also from the agents that have it."""
    agent_ids = tx.agent_files.agent_ids(file_id)
    tx.files.delete(organization_id, file_id)
    _mark(tx, agent_ids)


def open_in_agents(tx: Transaction, services: Services, file: File) -> None:
    """Open a file whose text is there now, in every agent that has its folder."""
    # Whoever attaches the folder at the same moment waits, and then finds the file ready.
    tx.folders.lock(file.organization_id, file.folder_id)
    known = set(tx.agent_files.agent_ids(file.id))
    agent_ids = [each for each in tx.folders.agent_ids(file.folder_id) if each not in known]
    now = services.clock.now()
    for start in range(0, len(agent_ids), _AGENTS_AT_ONCE):
        some = agent_ids[start : start + _AGENTS_AT_ONCE]
        tx.agent_files.lock(some)
        for agent in tx.agents.find(file.organization_id, some):
            _link_files(tx, services, agent, [file], now)
        tx.stale_prompts.mark(some)


def open_ranges(
    tx: Transaction,
    agent: Agent,
    files: Sequence[AttachedFile],
    opened: Mapping[str, LineRange],
    now: datetime,
    *,
    close_others: bool = False,
) -> Closed:
    """Open these of the agent's ``files``, by id, and close others if there is no room. The caller has locked the agent."""
    by_id = {item.file.id: item for item in files}
    states = [item.state for item in files]
    # With no room at all, every other file is closed.
    limit = 0 if close_others else files_open_limit(agent)
    evicted = choose_evicted(states, opened, limit)
    _close(tx, agent.id, evicted)
    for file_id, (start, end) in opened.items():
        state = by_id[file_id].state
        tx.agent_files.save(
            replace(state, is_open=True, start_line=start, end_line=end, last_accessed_at=now)
        )
    tx.stale_prompts.mark([agent.id])
    names = [by_id[state.file_id].name for state in evicted]
    return Closed(on_request=names) if close_others else Closed(evicted=names)


def _link_files(
    tx: Transaction, services: Services, agent: Agent, files: Sequence[File], now: datetime
) -> None:
    """Link files that the agent does not have yet, and open as many as it may have open, the oldest first."""
    limit = files_open_limit(agent)
    new = [
        _build_link(services, agent, file, now + timedelta(microseconds=number), number < limit)
        for number, file in enumerate(files)
    ]
    opening = [state.file_id for state in new if state.is_open]
    for state in choose_evicted(tx.agent_files.list_open(agent.id), opening, limit):
        tx.agent_files.save(_close_state(state))
    tx.agent_files.link(new)


def _build_link(
    services: Services, agent: Agent, file: File, moment: datetime, is_open: bool
) -> AgentFile:
    """``moment``: each file has its own, so that they stay in this order when they are listed and closed."""
    return AgentFile(
        id=services.ids.new_id(Kind.FILE_AGENT),
        agent_id=agent.id,
        file_id=file.id,
        created_at=moment,
        last_accessed_at=moment,
        is_open=is_open,
    )


def _mark(tx: Transaction, agent_ids: Sequence[str]) -> None:
    for start in range(0, len(agent_ids), _AGENTS_AT_ONCE):
        tx.stale_prompts.mark(agent_ids[start : start + _AGENTS_AT_ONCE])


def _close(tx: Transaction, agent_id: str, states: Sequence[AgentFile]) -> None:
    for state in states:
        tx.agent_files.save(_close_state(state))
    if states:
        tx.stale_prompts.mark([agent_id])


def _close_state(state: AgentFile) -> AgentFile:
    return replace(state, is_open=False, start_line=None, end_line=None)


def _attach_tools(tx: Transaction, agent: Agent) -> Agent:
    found = tx.tools.find(agent.organization_id, FILE_TOOLS)
    if len(found) < len(FILE_TOOLS):
        raise FileToolsMissing
    by_name = {tool.name: tool for tool in found}
    tx.agents.attach_tools(agent.id, [by_name[name].id for name in FILE_TOOLS])
    held = [tool.name for tool in found if tool.default_requires_approval]
    agent = tx.agents.get_for_update(agent.organization_id, agent.id)
    rules = tool_rules.with_approvals(agent.tool_rules, held)
    if rules != agent.tool_rules:
        agent = replace(agent, tool_rules=rules)
        tx.agents.save(agent)
    return agent
