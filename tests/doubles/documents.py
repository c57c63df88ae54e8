"""Documents of a test: every file is text, and the test decides what becomes of it."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from holdfast.ports.documents import Extracted


class ScriptedDocuments:
    """``extracted`` has the bytes of each file that was asked for. ``failures`` are raised first, in their order; ``gate``
    holds back every answer while it is not set."""

    def __init__(self) -> None:
        self.extracted: list[bytes] = []
        self.failures: list[Exception] = []
        self.problem: str | None = None
        self.asked = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.gate = asyncio.Event()
        self.gate.set()
        self.read: Callable[[bytes], str] = bytes.decode

    def find_format(self, name: str, media_type: str | None, head: bytes) -> str | None:
        return None if name.endswith(".png") else "text"

    def describe_refusal(self, name: str, media_type: str | None) -> str:
        return f"Unsupported file type: {media_type} (filename: {name})."

    async def extract(self, path: Path, format: str) -> Extracted:  # noqa: A002 - as in the port
        data = await asyncio.to_thread(path.read_bytes)
        self.extracted.append(data)
        self.asked.set()
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        if self.failures:
            raise self.failures.pop(0)
        return Extracted(text=self.read(data), problem=self.problem)
