"""What is in files: bytes, and the text that was extracted from them. Both are stored in parts, so that no transaction has to
write or read a large file at once."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from holdfast.core.files import Content, TextPart


class Contents(Protocol):
    def add(self, content: Content) -> None:
        """Store a new content, whose bytes are still to come."""
        ...

    def get(self, content_id: str) -> Content:
        """Return the content. NotFound: ``Content with ID <id> not found``."""
        ...

    def lock(self, content_id: str) -> Content:
        """Return the content, which no other transaction changes or deletes until this one ends."""
        ...

    def find(self, organization_id: str, digest: str, format: str) -> Content | None:  # noqa: A002 - the name of the field
        """Return the content with these bytes, locked as by ``lock``. One that is being received or deleted is not found."""
        ...

    def save(self, content: Content) -> None:
        """Replace the content. Two with the same bytes are a conflict, after which the transaction is run again."""
        ...

    def delete(self, content_id: str) -> None:
        """Delete the content, which no file may have. What is left of its rows is removed by ``Removals``."""
        ...

    def add_bytes(self, content_id: str, number: int, data: bytes) -> None:
        """Store a part of the bytes; parts count from 0."""
        ...

    def read_bytes(self, content_id: str, number: int) -> bytes | None:
        """Return a part of the bytes; None after the last one."""
        ...

    def add_text(self, content_id: str, parts: Sequence[TextPart]) -> None:
        """Store parts of the text."""
        ...

    def delete_text(self, content_id: str, limit: int) -> int:
        """Delete so many parts of the text at most; return how many they were."""
        ...

    def read_text_parts(self, content_id: str, start: int, limit: int) -> Sequence[TextPart]:
        """Return parts of the text, from the one with the number ``start`` on."""
        ...

    def read_text(self, content_id: str) -> str:
        """Return the whole text."""
        ...

    def read_lines(
        self, content_id: str, first: int, last: int | None, max_chars: int | None = None
    ) -> str:
        """Return these lines of the text with their line ends, both included and counted from 1; None: to the last one.
        ``max_chars``: no more characters than this, from the first line on."""
        ...

    def list_broken_uploads(self, before: datetime, limit: int) -> Sequence[Content]:
        """Return contents that are being received since before this time."""
        ...


class Removals(Protocol):
    """The rows of folders, files and contents that were deleted. There may be many, so they are removed in parts."""

    def remove_some(self, limit: int) -> bool:
        """Remove so many rows at most; return whether there may be more."""
        ...
