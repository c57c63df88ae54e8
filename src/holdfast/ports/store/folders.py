"""Folders of files."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from holdfast.core.files import Folder, FolderQuery, FolderUsage
from holdfast.core.paging import Page


class Folders(Protocol):
    def add(self, folder: Folder) -> None:
        """Store a new folder. AlreadyExists if another folder of the organisation has its name."""
        ...

    def get(self, organization_id: str, folder_id: str) -> Folder:
        """Return the folder. NotFound: ``Folder with ID <id> not found``."""
        ...

    def lock(self, organization_id: str, folder_id: str) -> Folder:
        """Return the folder. Until this transaction ends, others that lock it wait: for decisions about names of files."""
        ...

    def find(self, organization_id: str, folder_ids: Sequence[str]) -> Sequence[Folder]:
        """Return these folders in this order. NotFound, as for ``get``, if one of them does not exist."""
        ...

    def find_by_name(self, organization_id: str, name: str) -> Folder | None:
        """Return the folder with exactly this name."""
        ...

    def save(self, folder: Folder) -> None:
        """Replace the folder. AlreadyExists if another folder of the organisation has its name."""
        ...

    def delete(self, organization_id: str, folder_id: str, now: datetime) -> None:
        """Delete the folder with its files, and detach it from every agent: nobody finds them any more. What is left of the
        rows of many files is removed by ``Removals``."""
        ...

    def list(self, organization_id: str, query: FolderQuery) -> Sequence[Folder]:
        """Return one page of the folders that match."""
        ...

    def list_all(self, organization_id: str) -> Sequence[Folder]:
        """Return all folders, the oldest first."""
        ...

    def count(self, organization_id: str) -> int:
        """Count the folders."""
        ...

    def usage(self, organization_id: str) -> Mapping[str, FolderUsage]:
        """Return what is in each folder, by its id; only those that have a file."""
        ...

    def agent_ids(self, folder_id: str) -> Sequence[str]:
        """Return the ids of the agents that have the folder, sorted."""
        ...

    def page_of_agent_ids(self, organization_id: str, folder_id: str, page: Page) -> Sequence[str]:
        """Return one page of the ids of the agents that have the folder, by the time of their creation."""
        ...
