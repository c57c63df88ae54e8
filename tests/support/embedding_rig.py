"""Making vectors in a test: the services with an embedder that fails on request, and a clock that the test moves."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

from tests.doubles.clock import MovableClock
from tests.doubles.embedder import HANDLE, WordEmbedder
from tests.doubles.store import ProcessDied
from tests.support.rig import ACTOR, Rig
from tests.support.waiting import WAIT_SECONDS

from holdfast.core.archives import Archive
from holdfast.core.embeddings import DueText, EmbeddingProgress, Embeddings
from holdfast.core.ids import Kind
from holdfast.core.passages import PassageFilter
from holdfast.engine import embedding
from holdfast.engine.embedding import Embedding
from holdfast.errors import ModelRejectedRequest
from holdfast.ports.bell import EMBEDDINGS
from holdfast.ports.store import Store, Transaction
from holdfast.usecases import passage_search, passages
from holdfast.usecases.passages import NewPassage, StoredPassage

ANYWHERE = PassageFilter()


class FaultyEmbedder(WordEmbedder):
    """Refuses texts with a certain word, and has bugs."""

    def __init__(self, *handles: str) -> None:
        super().__init__(*handles)
        self.refused: str | None = None
        self.bugs: list[Exception] = []

    async def embed(
        self, handle: str, texts: Sequence[str], *, is_query: bool = False
    ) -> Embeddings:
        if self.bugs:
            raise self.bugs.pop()
        if self.refused is not None and any(self.refused in text for text in texts):
            raise ModelRejectedRequest(f"no {self.refused}, please")
        return await super().embed(handle, texts, is_query=is_query)


class EmbeddingRig:
    """The services with a scripted embedder and a clock that the test moves."""

    def __init__(self, store: Store, *handles: str) -> None:
        self.clock = MovableClock()
        self.embedder = FaultyEmbedder(*handles)
        self.rig = Rig(store, clock=self.clock)
        self.services = replace(self.rig.services, embedder=self.embedder)

    async def add_archive(self, embedding: str | None = HANDLE) -> Archive:
        now = self.clock.now()
        archive = Archive(
            id=self.services.ids.new_id(Kind.ARCHIVE),
            organization_id=ACTOR.organization_id,
            name="a",
            embedding=embedding,
            created_at=now,
            updated_at=now,
        )
        await self.services.store.write(lambda tx: tx.archives.add(archive))
        return archive

    async def insert(self, archive: Archive, *texts: str) -> list[StoredPassage]:
        items = [NewPassage(text=text) for text in texts]
        return list(await passages.insert(self.services, ACTOR, archive.id, items))

    async def search(self, query: str, limit: int = 10) -> passage_search.PassageSearch:
        return await passage_search.search(self.services, ACTOR, ANYWHERE, query, limit)

    async def count_due(self) -> int:
        later = self.clock.now() + timedelta(days=1)
        due = await self.services.store.read(lambda tx: tx.passage_vectors.list_due(later, 1_000))
        return len(due)

    @asynccontextmanager
    async def run_task(self, **options: float) -> AsyncIterator[asyncio.Task[None]]:
        task = asyncio.create_task(Embedding(self.services, **options).run())
        try:
            yield task
        finally:
            task.cancel()
            await _wait_for_end(task)

    def advance(self, seconds: float = 3_600.0) -> None:
        self.clock.advance(seconds)
        self.services.bell.ring(EMBEDDINGS)

    async def wait_until_embedded(self, archive: Archive, count: int) -> None:
        async def is_done() -> bool:
            return (await self.progress(archive)).embedded == count

        await poll(is_done)

    async def wait_for_attempts(self, attempts: int) -> DueText:
        """The one text that waits, when so many attempts have failed."""
        async with asyncio.timeout(WAIT_SECONDS):
            while True:
                later = self.clock.now() + timedelta(days=1)
                (due,) = await self.services.store.read(partial(_list_due, later=later))
                # While it is claimed, it is due much later.
                half = timedelta(seconds=embedding.CLAIM_SECONDS / 2)
                if due.attempts == attempts and due.due_at < self.clock.now() + half:
                    return due

    async def progress(self, archive: Archive, model: str = HANDLE) -> EmbeddingProgress:
        return await self.services.store.read(
            lambda tx: tx.passages.archive_progress(archive.id, model)
        )


async def _wait_for_end(task: asyncio.Task[None]) -> None:
    """Raises what the task has failed with, unless a test has let the process die."""
    try:
        with suppress(asyncio.CancelledError, ProcessDied):
            await asyncio.wait_for(task, WAIT_SECONDS)
    except BaseExceptionGroup as errors:
        # What else happened in a process that died does not count.
        if errors.subgroup(ProcessDied) is None:
            raise


async def poll(is_done: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not await is_done():
            pass


def _list_due(tx: Transaction, later: datetime) -> Sequence[DueText]:
    return tx.passage_vectors.list_due(later, 9)
