"""Processes uploaded files, the oldest first and a few at a time, and follows the vectors of their passages.

What is to be done is in the store, so nothing is lost by a restart.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from msgspec.structs import replace

from holdfast.core.embeddings import EmbeddingProgress
from holdfast.core.files import File, FileStatus
from holdfast.engine.file_ingestion import INTERNAL_ERROR, FileIngestion, OpenInAgents
from holdfast.engine.store_writes import finish
from holdfast.errors import BackendError, NotFound, StaleFile
from holdfast.ports.bell import FILES, REMOVALS
from holdfast.ports.services import Services
from holdfast.ports.store import Transaction

log = logging.getLogger(__name__)

FILES_AT_ONCE: Final = 2
# More are looked at, because some of them may have the content of one that is being processed.
_FILES_LOOKED_AT: Final = 50
# How often the store is checked for files of other servers, and for those that could not be processed.
POLL_SECONDS: Final = 5.0
# The same while there are files whose passages wait for vectors.
EMBEDDING_POLL_SECONDS: Final = 1.0
RETRY_SECONDS: Final = 5.0


class Ingestion:
    """``open_in_agents`` opens a file, whose text is there, in the agents that have its folder."""

    def __init__(self, services: Services, open_in_agents: OpenInAgents) -> None:
        self._services = services
        self._ingestion = FileIngestion(services, open_in_agents)
        self._running: dict[asyncio.Task[None], File] = {}

    async def run(self) -> None:
        """Process files until cancelled. Those that are not finished by then are begun again at the next start."""
        async with asyncio.TaskGroup() as group:
            while True:
                try:
                    await self._cancel_deleted()
                    await self._start_next(group)
                    seconds = await self._follow_vectors()
                except BackendError:
                    log.exception("store.unreachable", extra={"while": "looking for files"})
                    seconds = POLL_SECONDS
                with suppress(TimeoutError):
                    async with asyncio.timeout(seconds):
                        await self._services.bell.wait(FILES)

    async def _cancel_deleted(self) -> None:
        """Stop processing files that are deleted: extracting their text may take a minute."""
        running = dict(self._running)
        if not running:
            return

        def find_deleted(tx: Transaction) -> Sequence[asyncio.Task[None]]:
            return [
                task
                for task, file in running.items()
                if not tx.files.find(file.organization_id, [file.id])
            ]

        for task in await self._services.store.read(find_deleted):
            task.cancel()

    async def _start_next(self, group: asyncio.TaskGroup) -> None:
        unprocessed = await self._services.store.read(
            lambda tx: tx.files.list_in_status(
                [FileStatus.PENDING, FileStatus.PARSING], _FILES_LOOKED_AT
            )
        )
        for file in unprocessed:
            if len(self._running) >= FILES_AT_ONCE:
                return
            # The text of a content is extracted once.
            if file.content_id not in {other.content_id for other in self._running.values()}:
                task = group.create_task(self._process(file), name=f"file {file.id}")
                self._running[task] = file
                task.add_done_callback(self._release)

    def _release(self, task: asyncio.Task[None]) -> None:
        del self._running[task]
        # Another file can be begun now.
        self._services.bell.ring(FILES, here_only=True)

    async def _process(self, file: File) -> None:
        """Process one file. One that cannot be processed must not affect the others."""
        fields = {"file_id": file.id}
        try:
            await self._ingestion.process(file)
            # It may have replaced another one.
            self._services.bell.ring(REMOVALS, here_only=True)
        except (NotFound, StaleFile):
            log.info("file.superseded", extra=fields)
        except asyncio.CancelledError:
            await self._forget_attempt(file)
            raise
        except BackendError:
            log.exception("file.interrupted", extra=fields)
            await self._forget_attempt(file)
            await self._services.clock.sleep(RETRY_SECONDS)
        except Exception:
            log.exception("file.failed", extra=fields)
            await self._fail(file)

    async def _forget_attempt(self, file: File) -> None:
        """It was not the file that ended the attempt."""
        with suppress(NotFound, BackendError):
            await finish(self._services.store.write(partial(_forget_attempt, file=file)))

    async def _fail(self, file: File) -> None:
        try:
            stored = await self._services.store.read(
                lambda tx: tx.files.get(file.organization_id, file.id)
            )
            await self._ingestion.end(stored, FileStatus.ERROR, INTERNAL_ERROR)
        except (NotFound, StaleFile):
            log.info("file.superseded", extra={"file_id": file.id})
        except BackendError:
            # It is tried again, up to the most attempts of a file.
            log.exception("store.unreachable", extra={"while": "ending a file"})

    async def _follow_vectors(self) -> float:
        """Show how many passages have vectors; a file is completed when each was tried. Return how long to wait."""

        def load(tx: Transaction) -> Sequence[tuple[File, EmbeddingProgress]]:
            waiting = tx.files.list_in_status([FileStatus.EMBEDDING], _FILES_LOOKED_AT)
            return [(file, tx.passages.embedding_progress(file.id)) for file in waiting]

        waiting = await self._services.store.read(load)
        for file, progress in waiting:
            changed = follow_progress(file, progress)
            if changed != file:
                now = self._services.clock.now()
                await finish(
                    self._services.store.write(
                        partial(_save_embedding, file=replace(changed, updated_at=now))
                    )
                )
        return EMBEDDING_POLL_SECONDS if waiting else POLL_SECONDS


def follow_progress(file: File, progress: EmbeddingProgress) -> File:
    """The file as it is with so many vectors."""
    file = replace(file, chunks_embedded=progress.embedded)
    if progress.untried:
        return file
    missing = progress.total - progress.embedded
    if missing:
        why = f" The last error was: {progress.error}" if progress.error else ""
        message = (
            f"{missing} of {progress.total} parts of the file have no vectors, so that they are found by their words "
            f"only.{why}"
        )
        file = replace(file, error_message=message)
    return replace(file, status=FileStatus.COMPLETED)


def _forget_attempt(tx: Transaction, file: File) -> None:
    stored = tx.files.lock(file.organization_id, file.id)
    if stored.attempts:
        tx.files.save(replace(stored, attempts=stored.attempts - 1))


def _save_embedding(tx: Transaction, file: File) -> None:
    with suppress(NotFound):
        stored = tx.files.lock(file.organization_id, file.id)
        if stored.status is FileStatus.EMBEDDING:
            tx.files.save(file)
