"""Extracts text in processes of the sandbox; only plain text, which needs no parser, is decoded in a thread of the server.

The document and the text pass between the processes as open files, so the process needs no access to any folder.
"""

import asyncio
import importlib.util
import os
import tempfile
from pathlib import Path
from typing import Any, BinaryIO, Final

from holdfast.adapters.documents import extraction, formats
from holdfast.adapters.documents.plain_text import read_text
from holdfast.errors import DocumentUnreadable
from holdfast.ports.documents import Extracted
from holdfast.ports.sandbox import Sandbox, SandboxCall, SandboxLimits, SandboxResult

_SOURCE: Final = f"from {extraction.__name__} import extract"
# What the extra ``documents`` brings, and nothing else does.
_EXTRA_MODULE: Final = "markitdown"


class SandboxedDocuments:
    def __init__(self, sandbox: Sandbox, *, limits: SandboxLimits, seconds: float) -> None:
        """``limits``: those of the sandbox, of which ``file_bytes`` limits the text of a document."""
        self._sandbox = sandbox
        self._limits = limits
        self._seconds = seconds
        self._has_extra = importlib.util.find_spec(_EXTRA_MODULE) is not None

    def find_format(self, name: str, media_type: str | None, head: bytes) -> str | None:
        return formats.find_format(name, media_type, head, has_extra=self._has_extra)

    def describe_refusal(self, name: str, media_type: str | None) -> str:
        return formats.describe_refusal(name, media_type, has_extra=self._has_extra)

    async def extract(self, path: Path, format: str) -> Extracted:  # noqa: A002 - as in the port
        # Without a buffer: both processes would not agree on the position.
        with (
            path.open("rb", buffering=0) as document,
            tempfile.TemporaryFile(dir=path.parent, buffering=0) as text,
        ):
            if os.fstat(document.fileno()).st_size == 0:
                return Extracted(text="")
            if format == formats.TEXT:
                return Extracted(text=await asyncio.to_thread(read_text, document))
            if format in formats.NEEDING_EXTRA and not self._has_extra:
                raise DocumentUnreadable(
                    "The server was installed without the extra holdfast[documents], which reads such files."
                )
            result = await self._sandbox.run(
                SandboxCall(
                    source=_SOURCE,
                    function=extraction.extract.__name__,
                    arguments={"format": format},
                    timeout_seconds=self._seconds,
                    env={},
                    descriptors=(document.fileno(), text.fileno()),
                )
            )
            return await asyncio.to_thread(self._build_result, result, text)

    def _build_result(self, result: SandboxResult, text: BinaryIO) -> Extracted:
        """DocumentUnreadable if there is no text. What was written before a limit was reached counts."""
        answer: dict[str, Any] = result.value if result.status == "finished" else {}
        if (sentence := answer.get("unreadable")) is not None:
            raise DocumentUnreadable(sentence)
        if "problem" in answer:
            return Extracted(text=read_text(text, "utf-8"), problem=answer["problem"])
        problem = self._describe_failure(result, answer.get("exceeded"))
        found = read_text(text, "utf-8")
        if not found.strip():
            raise DocumentUnreadable(problem)
        return Extracted(text=found, problem=f"{problem} The rest of its text is missing.")

    def _describe_failure(self, result: SandboxResult, exceeded: str | None) -> str:
        limits = self._limits
        if result.status == "timed_out":
            return f"Reading the file takes longer than {self._seconds:g} seconds (HOLDFAST_DOCUMENT_SECONDS)."
        if extraction.MEMORY in (exceeded, result.exceeded_limit):
            return (
                f"Reading the file takes more than {limits.memory_bytes} bytes of memory "
                "(HOLDFAST_DOCUMENT_MEMORY_BYTES)."
            )
        if exceeded == extraction.TEXT_SIZE:
            return f"The text of the file has more than {limits.file_bytes} bytes (HOLDFAST_DOCUMENT_TEXT_BYTES)."
        return "The file cannot be read: the process that reads it has crashed."
