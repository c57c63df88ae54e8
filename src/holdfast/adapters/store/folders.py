"""Folders of files. A deleted folder is not found; ``file_removal`` removes its rows."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, Connection, delete, func, insert, select, update

from holdfast.adapters.store import tables
from holdfast.adapters.store.file_removal import PASSAGES_AT_ONCE, delete_passages
from holdfast.adapters.store.paging import PagedList
from holdfast.adapters.store.row_mapper import RowMapper
from holdfast.core.files import FileStatus, Folder, FolderQuery, FolderUsage
from holdfast.core.paging import Page
from holdfast.errors import NotFound

_folders = tables.folders
_files = tables.files
_links = tables.agent_folders
_agents = tables.agents

FOLDER = RowMapper(Folder, _folders)

_paged_list = PagedList(
    "Folder",
    _folders.c.id,
    organization_id=_folders.c.organization_id,
    orders={
        "created_at": _folders.c.created_at,
        "updated_at": _folders.c.updated_at,
        "name": _folders.c.name,
    },
)
_paged_agents = PagedList(
    "Agent",
    _agents.c.id,
    organization_id=_agents.c.organization_id,
    orders={"created_at": _agents.c.created_at},
)


class SqlFolders:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, folder: Folder) -> None:
        self._connection.execute(insert(_folders), FOLDER.to_row(folder))

    def get(self, organization_id: str, folder_id: str) -> Folder:
        return self.find(organization_id, [folder_id])[0]

    def lock(self, organization_id: str, folder_id: str) -> Folder:
        row = self._connection.execute(
            select(*FOLDER.columns)
            .where(_folders.c.id == folder_id, *_is_of(organization_id))
            # New rows that refer to the folder need not wait.
            .with_for_update(key_share=True)
        ).first()
        if row is None:
            raise _not_found(folder_id)
        return FOLDER.from_row(row)

    def find(self, organization_id: str, folder_ids: Sequence[str]) -> Sequence[Folder]:
        rows = self._connection.execute(
            select(*FOLDER.columns).where(_folders.c.id.in_(folder_ids), *_is_of(organization_id))
        )
        found = {folder.id: folder for folder in map(FOLDER.from_row, rows)}
        for folder_id in folder_ids:
            if folder_id not in found:
                raise _not_found(folder_id)
        return [found[folder_id] for folder_id in folder_ids]

    def find_by_name(self, organization_id: str, name: str) -> Folder | None:
        row = self._connection.execute(
            select(*FOLDER.columns).where(_folders.c.name == name, *_is_of(organization_id))
        ).first()
        return None if row is None else FOLDER.from_row(row)

    def save(self, folder: Folder) -> None:
        saved = self._connection.execute(
            update(_folders)
            .where(_folders.c.id == folder.id, *_is_of(folder.organization_id))
            .values(FOLDER.to_row(folder))
        )
        if saved.rowcount == 0:
            raise _not_found(folder.id)

    def delete(self, organization_id: str, folder_id: str, now: datetime) -> None:
        deleted = self._connection.execute(
            update(_folders)
            .where(_folders.c.id == folder_id, *_is_of(organization_id))
            .values(deleted_at=now)
        )
        if deleted.rowcount == 0:
            raise _not_found(folder_id)
        self._connection.execute(delete(_links).where(_links.c.folder_id == folder_id))
        file_ids = select(_files.c.id).where(_files.c.folder_id == folder_id)
        self._connection.execute(
            delete(tables.agent_files).where(tables.agent_files.c.file_id.in_(file_ids))
        )
        self._connection.execute(
            update(_files).where(_files.c.folder_id == folder_id).values(status=FileStatus.DELETED)
        )
        delete_passages(
            self._connection, tables.passages.c.folder_id == folder_id, PASSAGES_AT_ONCE
        )

    def list(self, organization_id: str, query: FolderQuery) -> Sequence[Folder]:
        selected = select(*FOLDER.columns).where(_folders.c.deleted_at.is_(None))
        if query.name_contains:
            selected = selected.where(
                _folders.c.name.icontains(query.name_contains, autoescape=True)
            )
        rows = _paged_list.select_page(self._connection, selected, organization_id, query.page)
        return [FOLDER.from_row(row) for row in rows]

    def list_all(self, organization_id: str) -> Sequence[Folder]:
        rows = self._connection.execute(
            select(*FOLDER.columns)
            .where(*_is_of(organization_id))
            .order_by(_folders.c.created_at, _folders.c.id)
        )
        return [FOLDER.from_row(row) for row in rows]

    def count(self, organization_id: str) -> int:
        selected = select(func.count()).select_from(_folders).where(*_is_of(organization_id))
        return self._connection.execute(selected).scalar_one()

    def usage(self, organization_id: str) -> Mapping[str, FolderUsage]:
        rows = self._connection.execute(
            select(_files.c.folder_id, func.count(), func.sum(tables.contents.c.size))
            .join(tables.contents, tables.contents.c.id == _files.c.content_id)
            .where(
                _files.c.organization_id == organization_id,
                _files.c.status != FileStatus.DELETED,
            )
            .group_by(_files.c.folder_id)
        )
        return {folder_id: FolderUsage(files, int(size)) for folder_id, files, size in rows}

    def agent_ids(self, folder_id: str) -> Sequence[str]:
        held = select(_links.c.agent_id).where(_links.c.folder_id == folder_id)
        return sorted(self._connection.execute(held).scalars())

    def page_of_agent_ids(self, organization_id: str, folder_id: str, page: Page) -> Sequence[str]:
        selected = (
            select(_agents.c.id)
            .join(_links, _links.c.agent_id == _agents.c.id)
            .where(_links.c.folder_id == folder_id)
        )
        rows = _paged_agents.select_page(self._connection, selected, organization_id, page)
        return [row[0] for row in rows]


def _is_of(organization_id: str) -> tuple[ColumnElement[bool], ...]:
    return _folders.c.organization_id == organization_id, _folders.c.deleted_at.is_(None)


def _not_found(folder_id: str) -> NotFound:
    return NotFound(f"Folder with ID {folder_id} not found")
