"""Agents with their tags, tools, blocks and secrets."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    bindparam,
    delete,
    exists,
    func,
    insert,
    select,
    union,
    update,
)

from holdfast.adapters.store import tables
from holdfast.adapters.store.blocks import BLOCK
from holdfast.adapters.store.cipher import Cipher
from holdfast.adapters.store.identity_links import identity_conditions
from holdfast.adapters.store.paging import PagedList
from holdfast.adapters.store.prepared_statement import PreparedStatement
from holdfast.adapters.store.row_mapper import RowMapper, refuse_nul
from holdfast.adapters.store.tag_filter import has_tags
from holdfast.adapters.store.tools import TOOL
from holdfast.core.agents import Agent, AgentQuery, Secret
from holdfast.core.blocks import Block
from holdfast.core.runs import Run
from holdfast.core.tools import Tool
from holdfast.errors import AlreadyExists, NotFound

_agents = tables.agents
_tool_links = tables.agent_tools
_block_links = tables.agent_blocks
_secrets = tables.agent_secrets

AGENT = RowMapper(Agent, _agents)
# Written only by ``set_last_run``, so that the end of a run and an edit of the agent never overwrite each other.
_LAST_RUN_COLUMNS = ("last_stop_reason", "last_run_completion", "last_run_duration_ms")

_paged_list = PagedList(
    "Agent",
    _agents.c.id,
    organization_id=_agents.c.organization_id,
    orders={
        "created_at": _agents.c.created_at,
        "updated_at": _agents.c.updated_at,
        "last_run_completion": _agents.c.last_run_completion,
    },
    ignores_unknown_cursors=True,
)

_select_by_id = select(*AGENT.columns).where(
    _agents.c.id == bindparam("this_id"), _agents.c.organization_id == bindparam("organization")
)
_get = PreparedStatement(_select_by_id)
# What refers to the agent can still be added meanwhile. SQLite has one writer anyway, and its SQL has no FOR UPDATE.
_get_for_update = PreparedStatement(_select_by_id.with_for_update(key_share=True))
_save = update(_agents).where(
    _agents.c.id == bindparam("this_id"), _agents.c.organization_id == bindparam("organization")
)
_insert_tag = PreparedStatement(insert(tables.agent_tags))
_insert_tool_link = PreparedStatement(insert(_tool_links))
_insert_block_link = PreparedStatement(insert(_block_links))
_insert_secret = PreparedStatement(insert(_secrets))
_set_last_run = PreparedStatement(
    update(_agents).where(_agents.c.id == bindparam("this_id")), columns=_LAST_RUN_COLUMNS
)


class _AgentRows:
    """Rows that belong to agents, each with the agent's id as last column. The query for one agent is prepared, because
    every turn uses it."""

    def __init__(self, rows: Select[Any], agent_id: ColumnElement[str]) -> None:
        rows = rows.add_columns(agent_id)
        self._for_one = PreparedStatement(rows.where(agent_id == bindparam("agent")))
        self._for_many = rows.where(agent_id.in_(bindparam("agents", expanding=True)))

    def rows(self, connection: Connection, agent_ids: Collection[str]) -> Iterable[Sequence[Any]]:
        if len(agent_ids) == 1:
            return self._for_one.fetch_all(connection, {"agent": next(iter(agent_ids))})
        return connection.execute(self._for_many, {"agents": list(agent_ids)})


_tool_rows = _AgentRows(
    select(*TOOL.columns)
    .join(_tool_links, _tool_links.c.tool_id == tables.tools.c.id)
    .order_by(_tool_links.c.ordinal),
    _tool_links.c.agent_id,
)
_block_rows = _AgentRows(
    select(*BLOCK.columns)
    .join(_block_links, _block_links.c.block_id == tables.blocks.c.id)
    .order_by(_block_links.c.ordinal),
    _block_links.c.agent_id,
)
_secret_rows = _AgentRows(
    select(
        _secrets.c.id, _secrets.c.key, _secrets.c.encrypted_value, _secrets.c.description
    ).order_by(_secrets.c.ordinal),
    _secrets.c.agent_id,
)


class SqlAgents:
    def __init__(self, connection: Connection, cipher: Cipher) -> None:
        self._connection = connection
        self._cipher = cipher

    def add(self, agent: Agent) -> None:
        self._connection.execute(insert(_agents), AGENT.to_row(agent))

    def get(self, organization_id: str, agent_id: str) -> Agent:
        return self._get(_get, organization_id, agent_id)

    def get_for_update(self, organization_id: str, agent_id: str) -> Agent:
        return self._get(_get_for_update, organization_id, agent_id)

    def find(self, organization_id: str, agent_ids: Collection[str]) -> Sequence[Agent]:
        rows = self._connection.execute(_select_some(organization_id, agent_ids))
        return [AGENT.from_row(row) for row in rows]

    def find_for_update(self, organization_id: str, agent_ids: Collection[str]) -> Sequence[Agent]:
        selected = _select_some(organization_id, agent_ids).order_by(_agents.c.id)
        rows = self._connection.execute(selected.with_for_update(key_share=True))
        return [AGENT.from_row(row) for row in rows]

    def lock_holders(self, tool_id: str, *, naming: str) -> Sequence[Agent]:
        links = _tool_links
        held = select(links.c.agent_id).where(links.c.tool_id == tool_id)
        selected = (
            select(*AGENT.columns)
            .where(
                _agents.c.id.in_(held),
                # Rules are in the JSON of the body.
                _agents.c.body.contains(f'"{naming}"', autoescape=True),
            )
            .order_by(_agents.c.id)
            .with_for_update(key_share=True)
        )
        return [AGENT.from_row(row) for row in self._connection.execute(selected)]

    def save(self, agent: Agent) -> None:
        row = {
            name: value
            for name, value in AGENT.to_row(agent).items()
            if name not in _LAST_RUN_COLUMNS
        }
        key = {"this_id": agent.id, "organization": agent.organization_id}
        if self._connection.execute(_save, row | key).rowcount == 0:
            raise _not_found(agent.id)

    def delete(self, organization_id: str, agent_id: str) -> None:
        deleted = self._connection.execute(
            delete(_agents).where(
                _agents.c.id == agent_id, _agents.c.organization_id == organization_id
            )
        )
        if deleted.rowcount == 0:
            raise _not_found(agent_id)

    def list(self, organization_id: str, query: AgentQuery) -> Sequence[Agent]:
        selected = select(*AGENT.columns).where(*_conditions(query))
        rows = _paged_list.select_page(self._connection, selected, organization_id, query.page)
        return [AGENT.from_row(row) for row in rows]

    def count(self, organization_id: str, query: AgentQuery) -> int:
        selected = (
            select(func.count())
            .select_from(_agents)
            .where(_agents.c.organization_id == organization_id, *_conditions(query))
        )
        return self._connection.execute(selected).scalar_one()

    def record_run_end(self, run: Run) -> None:
        if run.request.compaction is not None:
            # A compaction is not an answer, and a thread that waits for a person goes on waiting.
            return
        self.set_last_run(
            run.agent_id,
            stop_reason=run.stop_reason,
            completed_at=run.completed_at,
            duration_ms=(run.total_duration_ns or 0) // 1_000_000,
        )

    def set_last_run(
        self,
        agent_id: str,
        *,
        stop_reason: str | None,
        completed_at: datetime | None,
        duration_ms: int | None,
    ) -> None:
        _set_last_run.execute(
            self._connection,
            {
                "this_id": agent_id,
                "last_stop_reason": stop_reason,
                "last_run_completion": completed_at,
                "last_run_duration_ms": duration_ms,
            },
        )

    def tags(self, agent_ids: Collection[str]) -> Mapping[str, Sequence[str]]:
        rows = self._connection.execute(
            select(tables.agent_tags).where(tables.agent_tags.c.agent_id.in_(agent_ids))
        )
        found: defaultdict[str, list[str]] = defaultdict(list)
        for agent_id, tag in rows:
            found[agent_id].append(tag)
        return {agent_id: sorted(tags) for agent_id, tags in found.items()}

    def set_tags(self, agent_id: str, tags: Collection[str]) -> None:
        links = tables.agent_tags
        self._lock(agent_id)
        self._connection.execute(delete(links).where(links.c.agent_id == agent_id))
        for tag in tags:
            refuse_nul("tags", tag)
        rows = [{"agent_id": agent_id, "tag": tag} for tag in sorted(set(tags))]
        _insert_tag.execute_many(self._connection, rows)

    def all_tags(self, organization_id: str) -> Sequence[str]:
        of_agents = (
            select(tables.agent_tags.c.tag)
            .join(_agents)
            .where(_agents.c.organization_id == organization_id)
        )
        of_blocks = (
            select(tables.block_tags.c.tag)
            .join(tables.blocks)
            .where(tables.blocks.c.organization_id == organization_id)
        )
        return sorted(self._connection.execute(union(of_agents, of_blocks)).scalars())

    def tools(self, agent_ids: Collection[str]) -> Mapping[str, Sequence[Tool]]:
        found: dict[str, list[Tool]] = {agent_id: [] for agent_id in agent_ids}
        for row in _tool_rows.rows(self._connection, found.keys()):
            found[row[-1]].append(TOOL.from_row(row))
        return found

    def holders(self, tool_ids: Collection[str]) -> Mapping[str, Sequence[str]]:
        links = _tool_links
        rows = self._connection.execute(
            select(links.c.agent_id, links.c.tool_id)
            .where(links.c.tool_id.in_(tool_ids))
            .order_by(links.c.agent_id, links.c.ordinal)
        )
        held: dict[str, list[str]] = {}
        for agent_id, tool_id in rows:
            held.setdefault(agent_id, []).append(tool_id)
        return held

    def attach_tools(self, agent_id: str, tool_ids: Sequence[str]) -> None:
        links = _tool_links
        self._lock(agent_id)
        ordinals = self._select_map(links.c.tool_id, links.c.ordinal, links.c.agent_id == agent_id)
        new = [tool_id for tool_id in dict.fromkeys(tool_ids) if tool_id not in ordinals]
        first = max(ordinals.values(), default=0) + 1
        rows = [
            {"agent_id": agent_id, "tool_id": tool_id, "ordinal": ordinal}
            for ordinal, tool_id in enumerate(new, first)
        ]
        _insert_tool_link.execute_many(self._connection, rows)

    def detach_tools(self, agent_id: str, tool_ids: Collection[str]) -> None:
        links = _tool_links
        self._connection.execute(
            delete(links).where(links.c.agent_id == agent_id, links.c.tool_id.in_(tool_ids))
        )

    def blocks(self, agent_ids: Collection[str]) -> Mapping[str, Sequence[Block]]:
        found: dict[str, list[Block]] = {agent_id: [] for agent_id in agent_ids}
        for row in _block_rows.rows(self._connection, found.keys()):
            found[row[-1]].append(BLOCK.from_row(row))
        return found

    def attach_blocks(self, agent_id: str, block_ids: Sequence[str]) -> None:
        links, blocks = _block_links, tables.blocks
        labels = self._select_map(blocks.c.id, blocks.c.label, blocks.c.id.in_(block_ids))
        self._lock(agent_id)
        ordinals = self._select_map(links.c.block_id, links.c.ordinal, links.c.agent_id == agent_id)
        used = self._select_map(links.c.label, links.c.block_id, links.c.agent_id == agent_id)
        new = [block_id for block_id in dict.fromkeys(block_ids) if block_id not in ordinals]
        rows = []
        for ordinal, block_id in enumerate(new, max(ordinals.values(), default=0) + 1):
            label = labels.get(block_id)
            if label is None:
                raise NotFound(f"Block with ID {block_id} not found")
            if used.setdefault(label, block_id) != block_id:
                raise AlreadyExists(f"Agent {agent_id} already has a block with the label {label}.")
            rows.append(
                {"agent_id": agent_id, "block_id": block_id, "label": label, "ordinal": ordinal}
            )
        _insert_block_link.execute_many(self._connection, rows)

    def detach_blocks(self, agent_id: str, block_ids: Collection[str]) -> bool:
        links = _block_links
        deleted = self._connection.execute(
            delete(links).where(links.c.agent_id == agent_id, links.c.block_id.in_(block_ids))
        )
        return deleted.rowcount > 0

    def secrets(self, agent_ids: Collection[str]) -> Mapping[str, Sequence[Secret]]:
        found: dict[str, list[Secret]] = {agent_id: [] for agent_id in agent_ids}
        for key_id, key, encrypted, description, agent_id in _secret_rows.rows(
            self._connection, found.keys()
        ):
            value = self._cipher.decrypt(encrypted)
            found[agent_id].append(Secret(id=key_id, key=key, value=value, description=description))
        return found

    def set_secrets(self, agent_id: str, secrets: Sequence[Secret]) -> None:
        self._lock(agent_id)
        self._connection.execute(delete(_secrets).where(_secrets.c.agent_id == agent_id))
        rows = []
        for ordinal, secret in enumerate(secrets):
            refuse_nul("key", secret.key)
            refuse_nul("description", secret.description)
            rows.append(
                {
                    "id": secret.id,
                    "agent_id": agent_id,
                    "key": secret.key,
                    "ordinal": ordinal,
                    "encrypted_value": self._cipher.encrypt(secret.value),
                    "description": secret.description,
                }
            )
        _insert_secret.execute_many(self._connection, rows)

    def _get(self, statement: PreparedStatement, organization_id: str, agent_id: str) -> Agent:
        key = {"this_id": agent_id, "organization": organization_id}
        row = statement.fetch_first(self._connection, key)
        if row is None:
            raise _not_found(agent_id)
        return AGENT.from_row(row)

    def _lock(self, agent_id: str) -> None:
        """Lock the agent, so that changes of its links happen one after the other. SQLite has one writer anyway."""
        selected = (
            select(_agents.c.id).where(_agents.c.id == agent_id).with_for_update(key_share=True)
        )
        if self._connection.execute(selected).first() is None:
            raise _not_found(agent_id)

    def _select_map(
        self, key: ColumnElement[Any], value: ColumnElement[Any], where: ColumnElement[bool]
    ) -> dict[Any, Any]:
        rows = self._connection.execute(select(key, value).where(where))
        return {row[0]: row[1] for row in rows}


def _select_some(organization_id: str, agent_ids: Collection[str]) -> Select[Any]:
    return select(*AGENT.columns).where(
        _agents.c.id.in_(agent_ids), _agents.c.organization_id == organization_id
    )


def _not_found(agent_id: str) -> NotFound:
    return NotFound(f"Agent with ID {agent_id} not found")


def _conditions(query: AgentQuery) -> list[ColumnElement[bool]]:
    exact = {
        _agents.c.name: query.name,
        _agents.c.last_stop_reason: query.last_stop_reason,
        _agents.c.created_by_id: query.created_by_id,
        _agents.c.project_id: query.project_id,
        _agents.c.template_id: query.template_id,
        _agents.c.base_template_id: query.base_template_id,
    }
    conditions = [column == value for column, value in exact.items() if value is not None]
    if query.query_text:
        conditions.append(_agents.c.name.icontains(query.query_text, autoescape=True))
    if query.tags:
        conditions.append(
            has_tags(
                _agents.c.id, tables.agent_tags.c.agent_id, query.tags, every=query.match_all_tags
            )
        )
    if query.block_id is not None:
        links = _block_links
        conditions.append(
            exists().where(links.c.agent_id == _agents.c.id, links.c.block_id == query.block_id)
        )
    if query.archive_id is not None:
        archives = tables.agent_archives
        conditions.append(
            exists().where(
                archives.c.agent_id == _agents.c.id, archives.c.archive_id == query.archive_id
            )
        )
    conditions += identity_conditions(
        _agents.c.id,
        tables.identities_agents.c.agent_id,
        query.identity_id,
        query.identifier_keys,
    )
    if not query.show_hidden:
        conditions.append(_agents.c.hidden.is_not(True))
    return conditions
