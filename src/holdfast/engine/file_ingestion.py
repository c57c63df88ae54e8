"""Processes one file: its text is extracted, shown to agents, split into passages and stored, in small transactions.

After a crash it is begun again at the step that was not finished. Each transaction checks that nobody else has gone on with
the file meanwhile; a deleted file is not found, which ends the work.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.chunks import Chunk, split_text
from holdfast.core.files import Content, ContentStatus, File, FileStatus, Folder
from holdfast.core.ids import Kind
from holdfast.core.passages import Passage
from holdfast.engine.content_text import extract_text
from holdfast.engine.store_writes import finish
from holdfast.errors import StaleFile
from holdfast.ports.services import Services
from holdfast.ports.store import Transaction

log = logging.getLogger(__name__)

# Passages that one transaction stores: some milliseconds, most of them for the index of words.
PASSAGES_AT_ONCE: Final = 20
# How long a large file leaves the store and the processor to others after each such transaction, in times of its duration.
REST: Final = 1.0
# How often a file is begun without getting further. More often, and it is most likely the file that stops the server.
MAX_ATTEMPTS: Final = 5

_NO_TEXT = "The file could not be read."
_GIVEN_UP = (
    f"The server stopped {MAX_ATTEMPTS} times while it processed the file, and does not try again. Upload the file again "
    "if it should."
)
INTERNAL_ERROR = (
    "The file could not be processed because of an error of the server. Its log says more."
)

# Opens a file in the agents that have its folder, within the transaction that makes its text visible.
OpenInAgents = Callable[[Transaction, Services, File], None]


class _Job(Struct, frozen=True, kw_only=True):
    file: File
    folder: Folder
    content: Content


class FileIngestion:
    def __init__(self, services: Services, open_in_agents: OpenInAgents) -> None:
        self._services = services
        self._open_in_agents = open_in_agents

    async def process(self, file: File) -> None:
        """Process the file until its passages are stored. NotFound if it is deleted meanwhile, StaleFile if another server
        processes it."""
        job = await finish(self._services.store.write(partial(self._begin, file=file)))
        if job is None:
            return
        content = job.content
        if content.status is ContentStatus.STORED:
            content = await extract_text(self._services, content)
        if content.status is not ContentStatus.EXTRACTED:
            await self.end(job.file, FileStatus.ERROR, content.problem or _NO_TEXT)
            return
        text = await self._services.store.read(lambda tx: tx.contents.read_text(content.id))
        chunk_chars = job.folder.chunk_chars
        total = await asyncio.to_thread(lambda: sum(1 for _ in split_text(text, chunk_chars)))
        file = await self._show(job.file, content, total)
        model = self._choose_model(job.folder)
        file = await self._store_passages(file, text, chunk_chars, model)
        if model is not None and total:
            await self.end(file, FileStatus.EMBEDDING, file.error_message, embedded=0)
        else:
            await self.end(file, FileStatus.COMPLETED, file.error_message, embedded=total)

    async def end(
        self, file: File, status: FileStatus, message: str | None, *, embedded: int | None = None
    ) -> None:
        """Set the status that the file has from now on."""

        def work(tx: Transaction) -> None:
            stored = _lock_unchanged(tx, file)
            changed = replace(
                stored,
                status=status,
                error_message=message,
                chunks_embedded=embedded,
                updated_at=self._services.clock.now(),
            )
            tx.files.save(changed)

        await finish(self._services.store.write(work))
        log.info("file.processed", extra={"file_id": file.id, "status": status, "why": message})

    def _begin(self, tx: Transaction, file: File) -> _Job | None:
        """Count the attempt, so that a file that stops the server does not do so for ever."""
        file = tx.files.lock(file.organization_id, file.id)
        if not _is_unprocessed(file):
            return None
        if file.attempts >= MAX_ATTEMPTS:
            tx.files.save(replace(file, status=FileStatus.ERROR, error_message=_GIVEN_UP))
            return None
        file = replace(file, attempts=file.attempts + 1)
        tx.files.save(file)
        folder = tx.folders.get(file.organization_id, file.folder_id)
        return _Job(file=file, folder=folder, content=tx.contents.get(file.content_id))

    def _choose_model(self, folder: Folder) -> str | None:
        """The model that makes vectors of the passages, if it can be used."""
        handle = folder.embedding
        return handle if handle and self._services.embedder.is_configured(handle) else None

    async def _show(self, file: File, content: Content, total: int) -> File:
        """Make the text visible: the file takes the place of the one that it replaces, and is opened in agents. Passages that
        another version of the splitter has stored are deleted."""
        if file.total_chunks == total:
            return file
        while file.chunks_stored and await finish(
            self._services.store.write(partial(_delete_passages, file=file))
        ):
            pass

        def work(tx: Transaction) -> File:
            # In this order, as everywhere: the folder, then its files.
            tx.folders.lock(file.organization_id, file.folder_id)
            stored = _lock_unchanged(tx, file)
            if stored.replaces_id is not None:
                _replace_older(tx, stored)
            changed = replace(
                stored,
                replaces_id=None,
                total_chunks=total,
                chunks_stored=0,
                attempts=0,
                error_message=content.problem,
            )
            tx.files.save(changed)
            if file.total_chunks is None:
                self._open_in_agents(tx, self._services, changed)
            return changed

        return await finish(self._services.store.write(work))

    async def _store_passages(
        self, file: File, text: str, chunk_chars: int, model: str | None
    ) -> File:
        chunks = islice(split_text(text, chunk_chars), file.chunks_stored, None)
        while batch := await asyncio.to_thread(lambda: list(islice(chunks, PASSAGES_AT_ONCE))):
            passages = [self._build(file, chunk) for chunk in batch]
            started_ns = self._services.clock.monotonic_ns()
            file = await finish(
                self._services.store.write(
                    partial(_add_passages, file=file, passages=passages, model=model)
                )
            )
            await self._rest(started_ns)
        return file

    async def _rest(self, started_ns: int) -> None:
        clock = self._services.clock
        await clock.sleep(REST * (clock.monotonic_ns() - started_ns) / 1e9)

    def _build(self, file: File, chunk: Chunk) -> Passage:
        now = self._services.clock.now()
        return Passage(
            id=self._services.ids.new_id(Kind.PASSAGE),
            organization_id=file.organization_id,
            folder_id=file.folder_id,
            file_id=file.id,
            text=chunk.text,
            metadata={"start_line": chunk.start_line, "end_line": chunk.end_line},
            created_at=now,
            updated_at=now,
            created_by_id=file.created_by_id,
            last_updated_by_id=file.created_by_id,
        )


def _is_unprocessed(file: File) -> bool:
    return file.status in (FileStatus.PENDING, FileStatus.PARSING)


def _lock_unchanged(tx: Transaction, file: File) -> File:
    """Another server may have begun to process the same file: a leader that was paused does not know yet that it is none."""
    stored = tx.files.lock(file.organization_id, file.id)
    if not _is_unprocessed(stored) or (stored.total_chunks, stored.chunks_stored) != (
        file.total_chunks,
        file.chunks_stored,
    ):
        raise StaleFile(f"The file {file.id} was changed meanwhile.")
    return stored


def _replace_older(tx: Transaction, file: File) -> None:
    """Delete the file that has the name, and those that were to replace it and came before this one."""
    for other in tx.files.list_named(file.folder_id, file.name):
        has_name = other.replaces_id is None
        if has_name or other.created_at < file.created_at:
            tx.files.delete(other.organization_id, other.id)


def _add_passages(
    tx: Transaction, file: File, passages: Sequence[Passage], model: str | None
) -> File:
    stored = _lock_unchanged(tx, file)
    tx.passages.add(passages, model=model)
    changed = replace(stored, chunks_stored=stored.chunks_stored + len(passages), attempts=0)
    tx.files.save(changed)
    return changed


def _delete_passages(tx: Transaction, file: File) -> int:
    _lock_unchanged(tx, file)
    return tx.files.delete_passages(file.id, PASSAGES_AT_ONCE)
