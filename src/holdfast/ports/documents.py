"""Extracting the text of uploaded files, outside the server's process."""

from pathlib import Path
from typing import Protocol

from msgspec import Struct

from holdfast.errors import DocumentUnreadable


class Extracted(Struct, frozen=True, kw_only=True):
    """``problem``: a sentence for people that says why there is less text than one would expect, such as that the pages of
    a PDF are pictures."""

    text: str
    problem: str | None = None


class Documents(Protocol):
    def find_format(self, name: str, media_type: str | None, head: bytes) -> str | None:
        """Return how the text of such a file is extracted, as a short name such as ``text``, ``html`` or ``pdf``; None if it
        cannot be. ``head``: the first kilobytes of its bytes."""
        ...

    def describe_refusal(self, name: str, media_type: str | None) -> str:
        """A sentence for the person whose file has no format: which types there are, and what would let the server read this
        one."""
        ...

    async def extract(self, path: Path, format: str) -> Extracted:  # noqa: A002 - the name of the field in ``Content``
        """Return the text of the file. Line ends are ``\\n``, and there is no NUL in it. If a limit was reached after a part
        of the text, that part with a problem.

        DocumentUnreadable, with a sentence for the person who uploaded it, if there is no text to be had: the file is
        broken, encrypted, or exceeds a limit of time, memory or size. BackendError if the machine cannot start processes:
        to be tried again. When this returns or is cancelled, every process that it started is dead."""
        ...


class _NoDocuments:
    def find_format(self, name: str, media_type: str | None, head: bytes) -> str | None:  # noqa: ARG002 - none has one
        return None

    def describe_refusal(self, name: str, media_type: str | None) -> str:
        return f"Unsupported file type: {media_type or 'unknown'} (filename: {name})."

    async def extract(self, path: Path, format: str) -> Extracted:  # noqa: A002, ARG002 - as above; none can be read
        raise DocumentUnreadable("This server reads no files.")


# For tests of other things: a server that accepts no file.
NO_DOCUMENTS: Documents = _NoDocuments()
