"""Removes the rows of deleted folders, files and contents, so many in a transaction. They are hidden already."""

from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Table, delete, exists, select, tuple_, update

from holdfast.adapters.store import tables
from holdfast.core.files import ContentStatus, FileStatus

_folders = tables.folders
_files = tables.files
_contents = tables.contents
_passages = tables.passages

# Passages that are deleted together with their folder or file; the others are removed afterwards.
PASSAGES_AT_ONCE: Final = 500
# Parts of bytes and text are large, other rows are small.
_ROWS_PER_PART: Final = 50


def delete_passages(connection: Connection, where: ColumnElement[bool], limit: int) -> int:
    """Delete so many passages at most; return how many they were."""
    positions = select(_passages.c.position).where(where).limit(limit)
    return connection.execute(delete(_passages).where(_passages.c.position.in_(positions))).rowcount


class SqlRemovals:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def remove_some(self, limit: int) -> bool:
        return self._remove_file(limit) or self._remove_content(limit) or self._remove_folder()

    def _remove_file(self, limit: int) -> bool:
        row = self._connection.execute(
            select(_files.c.id, _files.c.content_id)
            .where(
                _files.c.status == FileStatus.DELETED,
                # The condition of the index, which the value of the parameter does not show.
                _files.c.status.not_in((FileStatus.COMPLETED, FileStatus.ERROR)),
            )
            .limit(1)
        ).first()
        if row is None:
            return False
        file_id, content_id = row
        if delete_passages(self._connection, _passages.c.file_id == file_id, limit) < limit:
            self._connection.execute(delete(_files).where(_files.c.id == file_id))
            self._release_content(content_id)
        return True

    def _release_content(self, content_id: str) -> None:
        """Delete the content if no file has it. It is locked first: an upload of the same bytes either has stored its file
        by then, or does not find the content any more."""
        locked = select(_contents.c.id).where(_contents.c.id == content_id).with_for_update()
        self._connection.execute(locked)
        self._connection.execute(
            update(_contents)
            .where(_contents.c.id == content_id, ~exists().where(_files.c.content_id == content_id))
            .values(status=ContentStatus.DELETED, digest=None)
        )

    def _remove_content(self, limit: int) -> bool:
        content_id = self._connection.execute(
            select(_contents.c.id)
            .where(
                _contents.c.status == ContentStatus.DELETED,
                # The condition of the index.
                _contents.c.status.in_((ContentStatus.RECEIVING, ContentStatus.DELETED)),
            )
            .limit(1)
        ).scalar_one_or_none()
        if content_id is None:
            return False
        parts = max(1, limit // _ROWS_PER_PART)
        for table in (tables.content_bytes, tables.content_texts):
            if self._delete_parts(table, content_id, parts) == parts:
                return True
        self._connection.execute(delete(_contents).where(_contents.c.id == content_id))
        return True

    def _delete_parts(self, table: Table, content_id: str, limit: int) -> int:
        key: Any = tuple_(table.c.content_id, table.c.number)
        some = select(table.c.content_id, table.c.number).where(table.c.content_id == content_id)
        return self._connection.execute(delete(table).where(key.in_(some.limit(limit)))).rowcount

    def _remove_folder(self) -> bool:
        """Remove a folder whose files are gone."""
        folder_id = self._connection.execute(
            select(_folders.c.id).where(_folders.c.deleted_at.is_not(None)).limit(1)
        ).scalar_one_or_none()
        if folder_id is None:
            return False
        self._connection.execute(delete(_folders).where(_folders.c.id == folder_id))
        return True
