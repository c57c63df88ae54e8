"""Files of folders. A deleted file is not found; ``file_removal`` removes its rows."""

from collections.abc import Collection, Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Select, delete, insert, select, update

from holdfast.adapters.store import tables
from holdfast.adapters.store.file_removal import PASSAGES_AT_ONCE, delete_passages
from holdfast.adapters.store.paging import PagedList
from holdfast.adapters.store.row_mapper import RowMapper
from holdfast.core.files import File, FileStatus
from holdfast.core.paging import Page
from holdfast.errors import NotFound

_files = tables.files

FILE = RowMapper(File, _files)

_FINAL: Final = (FileStatus.COMPLETED, FileStatus.ERROR)
_paged_list = PagedList(
    "File",
    _files.c.id,
    organization_id=_files.c.organization_id,
    orders={
        "created_at": _files.c.created_at,
        "updated_at": _files.c.updated_at,
        "name": _files.c.name,
    },
)


class SqlFiles:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, file: File) -> None:
        self._connection.execute(insert(_files), FILE.to_row(file))

    def get(self, organization_id: str, file_id: str) -> File:
        return self._load(select(*FILE.columns), organization_id, file_id)

    def lock(self, organization_id: str, file_id: str) -> File:
        # New rows that refer to the file need not wait.
        locked = select(*FILE.columns).with_for_update(key_share=True)
        return self._load(locked, organization_id, file_id)

    def find(self, organization_id: str, file_ids: Sequence[str]) -> Sequence[File]:
        found = {
            file.id: file
            for file in self._list(
                _files.c.id.in_(file_ids), _files.c.organization_id == organization_id
            )
        }
        return [found[file_id] for file_id in file_ids if file_id in found]

    def save(self, file: File) -> None:
        saved = self._connection.execute(
            update(_files)
            .where(_files.c.id == file.id, *_is_of(file.organization_id))
            .values(FILE.to_row(file))
        )
        if saved.rowcount == 0:
            raise _not_found(file.id)

    def delete(self, organization_id: str, file_id: str) -> None:
        deleted = self._connection.execute(
            update(_files)
            .where(_files.c.id == file_id, *_is_of(organization_id))
            .values(status=FileStatus.DELETED)
        )
        if deleted.rowcount == 0:
            raise _not_found(file_id)
        self._connection.execute(
            delete(tables.agent_files).where(tables.agent_files.c.file_id == file_id)
        )
        delete_passages(self._connection, tables.passages.c.file_id == file_id, PASSAGES_AT_ONCE)

    def delete_passages(self, file_id: str, limit: int) -> int:
        return delete_passages(self._connection, tables.passages.c.file_id == file_id, limit)

    def list(self, organization_id: str, folder_id: str, page: Page) -> Sequence[File]:
        selected = select(*FILE.columns).where(
            _files.c.folder_id == folder_id, _files.c.status != FileStatus.DELETED
        )
        rows = _paged_list.select_page(
            self._connection, selected, organization_id, page, has_narrower_condition=True
        )
        return [FILE.from_row(row) for row in rows]

    def list_of_folders(self, folder_ids: Collection[str]) -> Sequence[File]:
        return self._list(
            _files.c.folder_id.in_(folder_ids),
            _files.c.status != FileStatus.ERROR,
            _files.c.replaces_id.is_(None),
        )

    def list_by_original_name(self, folder_id: str, original_name: str) -> Sequence[File]:
        return self._list(_files.c.folder_id == folder_id, _files.c.original_name == original_name)

    def list_named(self, folder_id: str, name: str) -> Sequence[File]:
        return self._list(_files.c.folder_id == folder_id, _files.c.name == name)

    def list_names(self, folder_id: str, beginning: str) -> Collection[str]:
        names = select(_files.c.name).where(
            _files.c.folder_id == folder_id,
            _files.c.name.startswith(beginning, autoescape=True),
            _files.c.status != FileStatus.DELETED,
        )
        found = self._connection.execute(names).scalars()
        # SQLite ignores the case of letters.
        return {name for name in found if name.startswith(beginning)}

    def list_in_status(self, statuses: Collection[FileStatus], limit: int) -> Sequence[File]:
        return self._list(
            _files.c.status.in_(statuses),
            # The condition of the index, which the values of the parameters do not show.
            _files.c.status.not_in(_FINAL),
            limit=limit,
        )

    def _load(self, selected: Select[Any], organization_id: str, file_id: str) -> File:
        row = self._connection.execute(
            selected.where(_files.c.id == file_id, *_is_of(organization_id))
        ).first()
        if row is None:
            raise _not_found(file_id)
        return FILE.from_row(row)

    def _list(self, *conditions: ColumnElement[bool], limit: int | None = None) -> Sequence[File]:
        rows = self._connection.execute(
            select(*FILE.columns)
            .where(*conditions, _files.c.status != FileStatus.DELETED)
            .order_by(_files.c.created_at, _files.c.id)
            .limit(limit)
        )
        return [FILE.from_row(row) for row in rows]


def _is_of(organization_id: str) -> tuple[ColumnElement[bool], ...]:
    return _files.c.organization_id == organization_id, _files.c.status != FileStatus.DELETED


def _not_found(file_id: str) -> NotFound:
    return NotFound(f"File with id={file_id} not found")
