"""The folders and files of an agent as V1 shows them (memory-v1 §5.1)."""

from holdfast.core.agent_files import FileView, view_limit
from holdfast.core.agents import Agent
from holdfast.http.letta_v1.schemas.agent_files import (
    AgentFileAttachment,
    AgentFilesPage,
    FileBlock,
)
from holdfast.usecases.agent_files import FilePage


def files_page(page: FilePage) -> AgentFilesPage:
    files = [_attachment(view) for view in page.views]
    return AgentFilesPage(
        files=files, next_cursor=files[-1].id if files else None, has_more=page.has_more
    )


def _attachment(view: FileView) -> AgentFileAttachment:
    attached = view.attached
    state = attached.state
    return AgentFileAttachment(
        id=state.id,
        file_id=state.file_id,
        file_name=attached.name,
        folder_id=attached.file.folder_id,
        folder_name=attached.folder_name,
        is_open=state.is_open,
        last_accessed_at=state.last_accessed_at,
        visible_content=view.text if state.is_open else None,
        start_line=state.start_line,
        end_line=state.end_line,
    )


def file_block(view: FileView, agent: Agent) -> FileBlock:
    attached = view.attached
    return FileBlock(
        label=attached.name,
        value=view.text,
        limit=view_limit(agent),
        file_id=attached.file.id,
        source_id=attached.file.folder_id,
        is_open=attached.state.is_open,
        last_accessed_at=attached.state.last_accessed_at,
    )
