"""Identities. Their links with agents and blocks are in ``identity_links``."""

from collections.abc import Collection, Mapping, Sequence

from sqlalchemy import (
    ColumnElement,
    Connection,
    delete,
    func,
    insert,
    select,
    update,
)

from holdfast.adapters.store import tables
from holdfast.adapters.store.identity_links import SqlIdentityLinks
from holdfast.adapters.store.paging import PagedList
from holdfast.adapters.store.row_mapper import RowMapper
from holdfast.core.identities import Identity, IdentityQuery
from holdfast.errors import NotFound

_identities = tables.identities
_agent_links = tables.identities_agents

IDENTITY = RowMapper(Identity, _identities)

_paged_list = PagedList(
    "Identity",
    _identities.c.id,
    organization_id=_identities.c.organization_id,
    orders={"created_at": _identities.c.created_at},
)


class SqlIdentities:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.agents = SqlIdentityLinks(connection, _agent_links.c.agent_id)
        self.blocks = SqlIdentityLinks(connection, tables.identities_blocks.c.block_id)

    def add(self, identity: Identity) -> None:
        self._connection.execute(insert(_identities), IDENTITY.to_row(identity))

    def get(self, organization_id: str, identity_id: str) -> Identity:
        return self.find(organization_id, [identity_id])[0]

    def get_for_update(self, organization_id: str, identity_id: str) -> Identity:
        found = self._find_for_update(*_has_id(organization_id, identity_id))
        if found is None:
            raise _not_found(identity_id)
        return found

    def find(self, organization_id: str, identity_ids: Collection[str]) -> Sequence[Identity]:
        if not identity_ids:
            return []
        rows = self._connection.execute(
            select(*IDENTITY.columns).where(
                _identities.c.id.in_(identity_ids), _identities.c.organization_id == organization_id
            )
        )
        found = {identity.id: identity for identity in map(IDENTITY.from_row, rows)}
        for identity_id in identity_ids:
            if identity_id not in found:
                raise _not_found(identity_id)
        return [found[identity_id] for identity_id in identity_ids]

    def find_by_key(
        self, organization_id: str, identifier_key: str, project_id: str | None
    ) -> Identity | None:
        return self._find_for_update(
            _identities.c.organization_id == organization_id,
            _identities.c.identifier_key == identifier_key,
            # None becomes IS NULL.
            _identities.c.project_id == project_id,
        )

    def save(self, identity: Identity) -> None:
        saved = self._connection.execute(
            update(_identities)
            .where(*_has_id(identity.organization_id, identity.id))
            .values(IDENTITY.to_row(identity))
        )
        if saved.rowcount == 0:
            raise _not_found(identity.id)

    def delete(self, organization_id: str, identity_id: str) -> None:
        deleted = self._connection.execute(
            delete(_identities).where(*_has_id(organization_id, identity_id))
        )
        if deleted.rowcount == 0:
            raise _not_found(identity_id)

    def list(self, organization_id: str, query: IdentityQuery) -> Sequence[Identity]:
        selected = select(*IDENTITY.columns).where(*_conditions(query))
        rows = _paged_list.select_page(self._connection, selected, organization_id, query.page)
        return [IDENTITY.from_row(row) for row in rows]

    def count(self, organization_id: str, query: IdentityQuery) -> int:
        selected = (
            select(func.count())
            .select_from(_identities)
            .where(_identities.c.organization_id == organization_id, *_conditions(query))
        )
        return self._connection.execute(selected).scalar_one()

    def list_of_agents(self, agent_ids: Collection[str]) -> Mapping[str, Sequence[Identity]]:
        found: dict[str, list[Identity]] = {agent_id: [] for agent_id in agent_ids}
        rows = self._connection.execute(
            select(*IDENTITY.columns, _agent_links.c.agent_id)
            .join(_agent_links, _agent_links.c.identity_id == _identities.c.id)
            .where(_agent_links.c.agent_id.in_(list(found)))
            .order_by(_agent_links.c.attached_at, _identities.c.id)
        )
        for row in rows:
            found[row[-1]].append(IDENTITY.from_row(row))
        return found

    def _find_for_update(self, *conditions: ColumnElement[bool]) -> Identity | None:
        selected = select(*IDENTITY.columns).where(*conditions)
        # New links of the identity need not wait. SQLite has one writer anyway, and its SQL has no FOR UPDATE.
        row = self._connection.execute(selected.with_for_update(key_share=True)).first()
        return None if row is None else IDENTITY.from_row(row)


def _conditions(query: IdentityQuery) -> list[ColumnElement[bool]]:
    exact = {
        _identities.c.identifier_key: query.identifier_key,
        _identities.c.identity_type: query.identity_type,
        _identities.c.project_id: query.project_id,
    }
    conditions = [column == value for column, value in exact.items() if value is not None]
    if query.name_contains:
        conditions.append(_identities.c.name.icontains(query.name_contains, autoescape=True))
    return conditions


def _has_id(organization_id: str, identity_id: str) -> tuple[ColumnElement[bool], ...]:
    return _identities.c.id == identity_id, _identities.c.organization_id == organization_id


def _not_found(identity_id: str) -> NotFound:
    return NotFound(f"Identity not found with id='{identity_id}'")
