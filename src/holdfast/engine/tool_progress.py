"""How far running tools are, as they say it themselves, in the events of their run.

A tool may say so a thousand times a second: only the newest of each call is written, ten times a second at most. What
cannot be stored is lost, and the call goes on. Nothing is written after the calls have ended.
"""

import asyncio
import logging
from math import isfinite
from typing import Final

from holdfast import __version__
from holdfast.core.events import ToolProgressed
from holdfast.core.messages import ToolCall
from holdfast.engine.event_writer import EventWriter
from holdfast.engine.store_writes import finish
from holdfast.errors import BackendError, NotFound, StaleRun
from holdfast.ports.mcp import OnProgress, ToolProgress
from holdfast.ports.services import Services
from holdfast.ports.store import Transaction

log = logging.getLogger(__name__)

# How long to wait between two writes.
PAUSE_SECONDS: Final = 0.1
MAX_MESSAGE_CHARS: Final = 500
# How long it is believed that no server of another version is alive.
TRUSTED_SECONDS: Final = 60.0


class VersionCheck:
    """Whether every server that may read the events of a run is of this version: older ones cannot read progress."""

    def __init__(self, services: Services, version: str = __version__) -> None:
        self._services = services
        self._version = version
        self._checked_ns: int | None = None
        self._is_alone = False

    async def is_alone(self) -> bool:
        now = self._services.clock.monotonic_ns()
        if self._checked_ns is None or now - self._checked_ns > TRUSTED_SECONDS * 1e9:
            self._is_alone = await self._services.store.read(self._look_around)
            self._checked_ns = now
        return self._is_alone

    def _look_around(self, tx: Transaction) -> bool:
        servers = tx.servers.list()
        now = tx.servers.now()
        return all(item.version == self._version for item in servers if item.is_alive(now))


class ProgressReports:
    """What the calls of one answer say about their progress. ``close`` must be called when they have ended."""

    def __init__(
        self, services: Services, event_writer: EventWriter, versions: VersionCheck
    ) -> None:
        self._services = services
        self._event_writer = event_writer
        self._versions = versions
        # What is not written yet, by call, the longest waiting first.
        self._newest: dict[str, ToolProgressed] = {}
        self._listening: set[str] = set()
        self._heard = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def has_begun(self) -> bool:
        """Whether a call has said anything: only then there is something to close."""
        return self._task is not None

    def listen(self, call: ToolCall) -> OnProgress:
        """The function that the call is given. After ``stop_listening`` it does nothing."""
        self._listening.add(call.id)

        def on_progress(progress: ToolProgress) -> None:
            if call.id not in self._listening or not _is_finite(progress):
                return
            self._newest[call.id] = self._build_fact(call, progress)
            self._heard.set()
            if self._task is None:
                self._task = asyncio.create_task(self._write_all(), name="tool-progress")

        return on_progress

    def stop_listening(self, call: ToolCall) -> None:
        self._listening.discard(call.id)

    async def close(self, *, is_complete: bool) -> None:
        """Stop. If the calls are complete, what they said last is written before."""
        self._listening.clear()
        # To its end: nothing may be written after this, not even if the run is interrupted twice.
        await finish(self._end(is_complete=is_complete))

    async def _end(self, *, is_complete: bool) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        if is_complete and self._newest:
            await self._write()

    def _build_fact(self, call: ToolCall, progress: ToolProgress) -> ToolProgressed:
        message = progress.message
        return ToolProgressed(
            id=self._services.ids.new_otid(),
            call_id=call.id,
            name=call.name,
            progress=progress.progress,
            total=progress.total,
            message=_clean(message[:MAX_MESSAGE_CHARS]) if message else None,
        )

    async def _write_all(self) -> None:
        while True:
            while self._newest:
                await finish(self._write())
                await asyncio.sleep(PAUSE_SECONDS)
            self._heard.clear()
            await self._heard.wait()

    async def _write(self) -> None:
        facts, self._newest = [*self._newest.values()], {}
        try:
            if await self._versions.is_alone():
                await self._event_writer.write_at_once(facts)
        except (BackendError, StaleRun, NotFound) as error:
            # If the run is another server's by now, or gone, its next checkpoint says so.
            log.debug("progress.lost", extra={"why": str(error)})


def _is_finite(progress: ToolProgress) -> bool:
    """JSON has no other numbers."""
    return isfinite(progress.progress) and (progress.total is None or isfinite(progress.total))


def _clean(text: str) -> str:
    """Without lone surrogates, which UTF-8 does not have."""
    return text.encode(errors="replace").decode()
