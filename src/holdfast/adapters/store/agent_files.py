"""The folders of agents, and what they see of the files in them."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec.structs import asdict, replace
from sqlalchemy import Connection, Row, Select, and_, delete, select, update
from sqlalchemy.dialects import postgresql, sqlite

from holdfast.adapters.store import tables
from holdfast.adapters.store.contents import CONTENT
from holdfast.adapters.store.files import FILE
from holdfast.adapters.store.folders import FOLDER
from holdfast.adapters.store.paging import PagedList
from holdfast.core.agent_files import AttachedFile
from holdfast.core.files import AgentFile, FileStatus, Folder
from holdfast.core.ids import Kind, is_id
from holdfast.core.paging import Page
from holdfast.errors import NotFound

_agents = tables.agents
_folders = tables.folders
_files = tables.files
_contents = tables.contents
_folder_links = tables.agent_folders
_links = tables.agent_files

_LINK = tuple(_links.c[name] for name in AgentFile.__struct_fields__)
_select_attached: Select[Any] = (
    select(*_LINK, *FILE.columns, *CONTENT.columns, _folders.c.name)
    .select_from(_links)
    .join(_files, and_(_files.c.id == _links.c.file_id, _files.c.status != FileStatus.DELETED))
    .join(_folders, and_(_folders.c.id == _files.c.folder_id, _folders.c.deleted_at.is_(None)))
    .join(
        _folder_links,
        and_(
            _folder_links.c.agent_id == _links.c.agent_id,
            _folder_links.c.folder_id == _files.c.folder_id,
        ),
    )
    .join(_contents, _contents.c.id == _files.c.content_id)
)
_select_folders: Select[Any] = select(*FOLDER.columns, _folder_links.c.agent_id).join(
    _folder_links,
    and_(_folder_links.c.folder_id == _folders.c.id, _folders.c.deleted_at.is_(None)),
)
_paged_folders = PagedList(
    "Folder",
    _folders.c.id,
    organization_id=_folders.c.organization_id,
    orders={"created_at": _folders.c.created_at},
)
# The agent is what an organisation is for other lists: only its own files are in the list.
_paged_files = PagedList(
    "FileAgent",
    _links.c.id,
    organization_id=_links.c.agent_id,
    orders={"created_at": _links.c.created_at},
)


class SqlAgentFiles:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._dialect = postgresql if connection.dialect.name == "postgresql" else sqlite

    def lock(self, agent_ids: Collection[str]) -> None:
        # In the order of their ids, so that two transactions do not wait for each other. New rows that refer to the agent
        # need not wait.
        self._connection.execute(
            select(_agents.c.id)
            .where(_agents.c.id.in_(agent_ids))
            .order_by(_agents.c.id)
            .with_for_update(key_share=True)
        ).all()

    def attach_folder(self, agent_id: str, folder_id: str, now: datetime) -> None:
        row = {"agent_id": agent_id, "folder_id": folder_id, "attached_at": now}
        self._connection.execute(
            self._dialect.insert(_folder_links).values(row).on_conflict_do_nothing()
        )

    def detach_folder(self, agent_id: str, folder_id: str) -> bool:
        file_ids = select(_files.c.id).where(_files.c.folder_id == folder_id)
        self._connection.execute(
            delete(_links).where(_links.c.agent_id == agent_id, _links.c.file_id.in_(file_ids))
        )
        detached = self._connection.execute(
            delete(_folder_links).where(
                _folder_links.c.agent_id == agent_id, _folder_links.c.folder_id == folder_id
            )
        )
        return detached.rowcount > 0

    def folders(self, agent_ids: Collection[str]) -> Mapping[str, Sequence[Folder]]:
        found: dict[str, list[Folder]] = {agent_id: [] for agent_id in agent_ids}
        rows = self._connection.execute(
            _select_folders.where(_folder_links.c.agent_id.in_(list(found))).order_by(
                _folders.c.name
            )
        )
        for row in rows:
            found[row[-1]].append(FOLDER.from_row(row))
        return found

    def page_of_folders(self, organization_id: str, agent_id: str, page: Page) -> Sequence[Folder]:
        selected = _select_folders.where(_folder_links.c.agent_id == agent_id)
        rows = _paged_folders.select_page(
            self._connection, selected, organization_id, page, has_narrower_condition=True
        )
        return [FOLDER.from_row(row) for row in rows]

    def link(self, files: Sequence[AgentFile]) -> None:
        if files:
            self._connection.execute(
                self._dialect.insert(_links).on_conflict_do_nothing(), [asdict(i) for i in files]
            )

    def save(self, file: AgentFile) -> None:
        self._connection.execute(
            update(_links)
            .where(_links.c.id == file.id)
            .values(
                is_open=file.is_open,
                last_accessed_at=file.last_accessed_at,
                start_line=file.start_line,
                end_line=file.end_line,
            )
        )

    def touch(self, agent_id: str, file_ids: Collection[str], now: datetime) -> None:
        self._connection.execute(
            update(_links)
            .where(_links.c.agent_id == agent_id, _links.c.file_id.in_(file_ids))
            .values(last_accessed_at=now)
        )

    def get(self, agent_id: str, file_id: str) -> AttachedFile:
        row = self._connection.execute(
            _select_attached.where(_links.c.agent_id == agent_id, _links.c.file_id == file_id)
        ).first()
        if row is None:
            raise NotFound(f"File with id={file_id} not found")
        return _from_row(row)

    def list_of_agents(self, agent_ids: Collection[str]) -> Mapping[str, Sequence[AttachedFile]]:
        found: dict[str, list[AttachedFile]] = {agent_id: [] for agent_id in agent_ids}
        rows = self._connection.execute(
            _select_attached.where(_links.c.agent_id.in_(list(found))).order_by(
                _links.c.created_at, _links.c.id
            )
        )
        for attached in map(_from_row, rows):
            found[attached.state.agent_id].append(attached)
        return found

    def list_open(self, agent_id: str) -> Sequence[AgentFile]:
        rows = self._connection.execute(
            select(*_LINK).where(_links.c.agent_id == agent_id, _links.c.is_open)
        )
        return [_link_from_row(row) for row in rows]

    def linked_ids(self, agent_id: str, folder_id: str) -> Collection[str]:
        linked = select(_links.c.file_id).where(
            _links.c.agent_id == agent_id,
            _links.c.file_id.in_(select(_files.c.id).where(_files.c.folder_id == folder_id)),
        )
        return set(self._connection.execute(linked).scalars())

    def page(
        self, agent_id: str, page: Page, *, is_open: bool | None = None
    ) -> Sequence[AttachedFile]:
        selected = _select_attached
        if is_open is not None:
            selected = selected.where(_links.c.is_open.is_(is_open))
        page = replace(
            page,
            after=self._find_cursor(agent_id, page.after),
            before=self._find_cursor(agent_id, page.before),
        )
        rows = _paged_files.select_page(self._connection, selected, agent_id, page)
        return [_from_row(row) for row in rows]

    def agent_ids(self, file_id: str) -> Sequence[str]:
        held = select(_links.c.agent_id).where(_links.c.file_id == file_id)
        return sorted(self._connection.execute(held).scalars())

    def _find_cursor(self, agent_id: str, cursor: str | None) -> str | None:
        """The id of the link, if the cursor is the id of a file."""
        if cursor is None or not is_id(Kind.FILE, cursor):
            return cursor
        link = select(_links.c.id).where(_links.c.agent_id == agent_id, _links.c.file_id == cursor)
        return self._connection.execute(link).scalar() or cursor


def _from_row(row: Row[Any]) -> AttachedFile:
    """Convert a row of ``_select_attached``."""
    file_start = len(_LINK)
    content = CONTENT.from_row(row[file_start + len(FILE.columns) :])
    return AttachedFile(
        state=_link_from_row(row[:file_start]),
        file=FILE.from_row(row[file_start:]),
        folder_name=row[-1],
        lines=content.lines,
        characters=content.characters,
    )


def _link_from_row(row: Sequence[Any]) -> AgentFile:
    return AgentFile(**dict(zip(AgentFile.__struct_fields__, row, strict=True)))
