"""Files of folders. What is in them is in ``contents``."""

from collections.abc import Collection, Sequence
from typing import Protocol

from holdfast.core.files import File, FileStatus
from holdfast.core.paging import Page


class Files(Protocol):
    """A file that is deleted is not found, although its rows may still be there."""

    def add(self, file: File) -> None:
        """Store a new file. The names of files that replace no other are unique in a folder: a second one is a conflict,
        after which the transaction is run again."""
        ...

    def get(self, organization_id: str, file_id: str) -> File:
        """Return the file. NotFound: ``File with id=<id> not found``."""
        ...

    def lock(self, organization_id: str, file_id: str) -> File:
        """Return the file, which no other transaction changes or deletes until this one ends."""
        ...

    def find(self, organization_id: str, file_ids: Sequence[str]) -> Sequence[File]:
        """Return those of the files that exist, in this order."""
        ...

    def save(self, file: File) -> None:
        """Replace the file."""
        ...

    def delete(self, organization_id: str, file_id: str) -> None:
        """Delete the file and take it from every agent: nobody finds it any more. What is left of the rows of a large one is
        removed by ``Removals``."""
        ...

    def delete_passages(self, file_id: str, limit: int) -> int:
        """Delete so many passages of the file at most; return how many they were."""
        ...

    def list(self, organization_id: str, folder_id: str, page: Page) -> Sequence[File]:
        """Return one page of the files of the folder."""
        ...

    def list_of_folders(self, folder_ids: Collection[str]) -> Sequence[File]:
        """Return all files of the folders whose text is there or may still come, the oldest first. A file that is to
        replace another one is not among them until it does."""
        ...

    def list_by_original_name(self, folder_id: str, original_name: str) -> Sequence[File]:
        """Return the files of the folder that were uploaded under this name, the oldest first."""
        ...

    def list_named(self, folder_id: str, name: str) -> Sequence[File]:
        """Return the files of the folder with this name: one at most has the place, others are to replace it."""
        ...

    def list_names(self, folder_id: str, beginning: str) -> Collection[str]:
        """Return the names of files of the folder that begin so."""
        ...

    def list_in_status(self, statuses: Collection[FileStatus], limit: int) -> Sequence[File]:
        """Return files of all organisations that are not finished, the oldest first. ``statuses`` has no final status."""
        ...
