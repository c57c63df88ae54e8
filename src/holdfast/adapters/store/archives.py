"""Archives, and their links to agents. Their passages are in ``passages``."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, delete, exists, insert, select, update

from holdfast.adapters.store import tables
from holdfast.adapters.store.paging import PagedList
from holdfast.adapters.store.row_mapper import RowMapper
from holdfast.core.archives import Archive, ArchiveQuery
from holdfast.errors import NotFound

_archives = tables.archives
_links = tables.agent_archives

ARCHIVE = RowMapper(Archive, _archives)

_paged_list = PagedList(
    "Archive",
    _archives.c.id,
    organization_id=_archives.c.organization_id,
    orders={"created_at": _archives.c.created_at},
)


class SqlArchives:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, archive: Archive) -> None:
        self._connection.execute(insert(_archives), ARCHIVE.to_row(archive))

    def get(self, organization_id: str, archive_id: str) -> Archive:
        return self._get(
            archive_id, select(*ARCHIVE.columns).where(*_has_id(organization_id, archive_id))
        )

    def hold(self, organization_id: str, archive_id: str) -> Archive:
        selected = select(*ARCHIVE.columns).where(*_has_id(organization_id, archive_id))
        return self._get(archive_id, selected.with_for_update(read=True))

    def get_for_update(self, organization_id: str, archive_id: str) -> Archive:
        selected = select(*ARCHIVE.columns).where(*_has_id(organization_id, archive_id))
        # Passages that refer to the archive can be stored meanwhile: its key stays as it is.
        return self._get(archive_id, selected.with_for_update(key_share=True))

    def find(self, organization_id: str, archive_ids: Collection[str]) -> Sequence[Archive]:
        rows = self._connection.execute(
            select(*ARCHIVE.columns).where(
                _archives.c.id.in_(archive_ids), _archives.c.organization_id == organization_id
            )
        )
        return [ARCHIVE.from_row(row) for row in rows]

    def save(self, archive: Archive) -> None:
        saved = self._connection.execute(
            update(_archives)
            .where(*_has_id(archive.organization_id, archive.id))
            .values(ARCHIVE.to_row(archive))
        )
        if saved.rowcount == 0:
            raise _not_found(archive.id)

    def delete(self, organization_id: str, archive_id: str) -> None:
        deleted = self._connection.execute(
            delete(_archives).where(*_has_id(organization_id, archive_id))
        )
        if deleted.rowcount == 0:
            raise _not_found(archive_id)

    def list(self, organization_id: str, query: ArchiveQuery) -> Sequence[Archive]:
        selected = select(*ARCHIVE.columns)
        if query.name is not None:
            selected = selected.where(_archives.c.name == query.name)
        if query.agent_id is not None:
            selected = selected.where(
                exists().where(
                    _links.c.archive_id == _archives.c.id, _links.c.agent_id == query.agent_id
                )
            )
        rows = _paged_list.select_page(self._connection, selected, organization_id, query.page)
        return [ARCHIVE.from_row(row) for row in rows]

    def attach(
        self, agent_id: str, archive_id: str, now: datetime, *, is_owner: bool = False
    ) -> None:
        changed = self._connection.execute(
            update(_links)
            .where(_links.c.agent_id == agent_id, _links.c.archive_id == archive_id)
            .values(is_owner=is_owner)
        )
        if changed.rowcount == 0:
            link = {
                "agent_id": agent_id,
                "archive_id": archive_id,
                "attached_at": now,
                "is_owner": is_owner,
            }
            self._connection.execute(insert(_links), link)

    def detach(self, agent_id: str, archive_id: str) -> None:
        self._connection.execute(
            delete(_links).where(_links.c.agent_id == agent_id, _links.c.archive_id == archive_id)
        )

    def list_of_agents(self, agent_ids: Collection[str]) -> Mapping[str, Sequence[Archive]]:
        found: dict[str, list[Archive]] = {agent_id: [] for agent_id in agent_ids}
        rows = self._connection.execute(
            select(*ARCHIVE.columns, _links.c.agent_id)
            .join(_links, _links.c.archive_id == _archives.c.id)
            .where(_links.c.agent_id.in_(list(found)))
            .order_by(_links.c.is_owner.desc(), _links.c.attached_at, _links.c.archive_id)
        )
        for row in rows:
            found[row[-1]].append(ARCHIVE.from_row(row))
        return found

    def _get(self, archive_id: str, selected: Select[Any]) -> Archive:
        row = self._connection.execute(selected).first()
        if row is None:
            raise _not_found(archive_id)
        return ARCHIVE.from_row(row)


def _has_id(organization_id: str, archive_id: str) -> tuple[ColumnElement[bool], ...]:
    return _archives.c.id == archive_id, _archives.c.organization_id == organization_id


def _not_found(archive_id: str) -> NotFound:
    return NotFound(f"Archive with ID {archive_id} not found")
