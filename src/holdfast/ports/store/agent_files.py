"""The folders of agents, and which of the files in them they have open."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from holdfast.core.agent_files import AttachedFile
from holdfast.core.files import AgentFile, Folder
from holdfast.core.paging import Page


class AgentFiles(Protocol):
    """A folder or file that is deleted is not among those of an agent."""

    def lock(self, agent_ids: Collection[str]) -> None:
        """Keep others that lock these agents waiting until this transaction ends: for those who open and close files. Lock
        folders before agents."""
        ...

    def attach_folder(self, agent_id: str, folder_id: str, now: datetime) -> None:
        """Attach the folder; nothing happens if it is attached. Its files are linked by ``link``."""
        ...

    def detach_folder(self, agent_id: str, folder_id: str) -> bool:
        """Detach the folder and remove its files from the agent; return whether it was attached."""
        ...

    def folders(self, agent_ids: Collection[str]) -> Mapping[str, Sequence[Folder]]:
        """Return the folders of each agent, by name."""
        ...

    def page_of_folders(self, organization_id: str, agent_id: str, page: Page) -> Sequence[Folder]:
        """Return one page of the folders of the agent."""
        ...

    def link(self, files: Sequence[AgentFile]) -> None:
        """Store new files of agents. One that the agent has already stays as it is."""
        ...

    def save(self, file: AgentFile) -> None:
        """Replace what the agent sees of the file; nothing happens if the file is gone."""
        ...

    def touch(self, agent_id: str, file_ids: Collection[str], now: datetime) -> None:
        """Set ``last_accessed_at`` of these files."""
        ...

    def get(self, agent_id: str, file_id: str) -> AttachedFile:
        """Return the file of the agent. NotFound: ``File with id=<id> not found``."""
        ...

    def list_of_agents(self, agent_ids: Collection[str]) -> Mapping[str, Sequence[AttachedFile]]:
        """Return all files of each agent, in the order in which they were linked."""
        ...

    def list_open(self, agent_id: str) -> Sequence[AgentFile]:
        """Return what the agent has open."""
        ...

    def linked_ids(self, agent_id: str, folder_id: str) -> Collection[str]:
        """Return the ids of the files of the folder that the agent has."""
        ...

    def page(
        self, agent_id: str, page: Page, *, is_open: bool | None = None
    ) -> Sequence[AttachedFile]:
        """Return one page of the files of the agent. Cursors are the ids of ``AgentFile`` or of ``File``."""
        ...

    def agent_ids(self, file_id: str) -> Sequence[str]:
        """Return the ids of the agents that have the file, sorted."""
        ...
