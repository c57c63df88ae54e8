"""Makes the vectors that texts wait for, in batches, with retries.

A text waits in the store from the moment when it is stored, so none is forgotten in a crash. A provider that is down or
slow delays vectors and nothing else. If two servers make the vector of one text, the second one is not stored.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import groupby
from operator import attrgetter
from typing import Final

from holdfast.core.embeddings import LONGEST_WAIT_SECONDS, DueText, retry_wait_seconds
from holdfast.engine.store_writes import finish
from holdfast.errors import (
    BackendError,
    ContextWindowExceeded,
    ModelError,
    ModelRejectedRequest,
    ModelTimedOut,
    UnknownModel,
)
from holdfast.ports.bell import EMBEDDINGS
from holdfast.ports.services import Services
from holdfast.ports.store import Transaction, Vectors
from holdfast.vector_writes import save_vectors

log = logging.getLogger(__name__)

# How many texts one request to a provider has, and how many requests are made at a time.
BATCH_TEXTS: Final = 32
MAX_CONCURRENT: Final = 3
# How long one attempt may take, and after how long the claim of a server that died expires.
ATTEMPT_SECONDS: Final = 60.0
CLAIM_SECONDS: Final = 120.0
# How often the store is checked for texts of other servers, in case the bell is not heard.
POLL_SECONDS: Final = 5.0
STORE_RETRY_SECONDS: Final = 2.0

_INTERNAL_ERROR: Final = "The server could not make the vector."
_KINDS: Final[Mapping[str, Callable[[Transaction], Vectors]]] = {
    "passages": lambda tx: tx.passage_vectors,
    "messages": lambda tx: tx.message_vectors,
}
# A kind of text, and some texts of it that are for one model.
Batch = tuple[str, Sequence[DueText]]


class Embedding:
    def __init__(self, services: Services, *, attempt_seconds: float = ATTEMPT_SECONDS) -> None:
        self._services = services
        self._attempt_seconds = attempt_seconds
        self._in_flight: dict[asyncio.Task[None], Batch] = {}
        # The kinds, models and lengths whose search is prepared.
        self._prepared: set[tuple[str, str, int]] = set()

    async def run(self) -> None:
        """Make vectors until cancelled. Attempts that are not over by then are released, for the next start."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._prepare_all(group), name="vectors of earlier starts")
                await self._run(group)
        finally:
            await self._release_unfinished()

    async def _run(self, group: asyncio.TaskGroup) -> None:
        while True:
            try:
                seconds = await self._start_due(group)
            except BackendError:
                log.exception("store.unreachable", extra={"while": "looking for texts"})
                seconds = STORE_RETRY_SECONDS
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._services.bell.wait(EMBEDDINGS)

    async def _start_due(self, group: asyncio.TaskGroup) -> float:
        """Start the batches that are due, within the limit; returns how long to wait before the next check."""
        free = MAX_CONCURRENT - len(self._in_flight)
        if free <= 0:
            return POLL_SECONDS
        now = self._services.clock.now()

        def load(tx: Transaction) -> tuple[list[Batch], list[datetime]]:
            stores = {kind: choose(tx) for kind, choose in _KINDS.items()}
            due = [
                (kind, batch)
                for kind, vectors in stores.items()
                for batch in _split(vectors.list_due(now, free * BATCH_TEXTS))
            ]
            times = [vectors.next_due_at(now) for vectors in stores.values()]
            return due, [at for at in times if at is not None]

        due, times = await self._services.store.read(load)
        for kind, batch in due[:free]:
            await self._start(group, kind, batch, now + timedelta(seconds=CLAIM_SECONDS))
        return min([POLL_SECONDS, *((at - now).total_seconds() for at in times)])

    async def _start(
        self, group: asyncio.TaskGroup, kind: str, batch: Sequence[DueText], until: datetime
    ) -> None:
        # To its end: a claim that nobody knows of would delay its texts until it expires.
        claimed = await finish(
            self._services.store.write(lambda tx: _KINDS[kind](tx).claim(batch, until))
        )
        if claimed:
            task = group.create_task(self._make(group, kind, claimed), name=f"vectors of {kind}")
            self._in_flight[task] = kind, claimed
            task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            del self._in_flight[task]
            # Another batch can start now.
            self._services.bell.ring(EMBEDDINGS, here_only=True)

    async def _release_unfinished(self) -> None:
        now = self._services.clock.now()
        unfinished = list(self._in_flight.values())

        def work(tx: Transaction) -> None:
            for kind, claimed in unfinished:
                _KINDS[kind](tx).release(claimed, now)

        if unfinished:
            with suppress(BackendError):
                await self._services.store.write(work)

    async def _make(self, group: asyncio.TaskGroup, kind: str, claimed: Sequence[DueText]) -> None:
        """Make one attempt. No provider and no bug may affect the vectors of other texts."""
        try:
            await self._attempt(group, kind, claimed)
        except BackendError:
            # The claim expires by itself.
            log.exception("store.unreachable", extra={"while": "storing vectors"})
        except Exception:
            log.exception("embedding.failed", extra={"model": claimed[0].model})

    async def _attempt(
        self, group: asyncio.TaskGroup, kind: str, claimed: Sequence[DueText]
    ) -> None:
        model = claimed[0].model
        try:
            async with asyncio.timeout(self._attempt_seconds):
                made = await self._services.embedder.embed(model, [item.text for item in claimed])
        except (ModelRejectedRequest, ContextWindowExceeded) as error:
            if len(claimed) > 1 and not error.transient:
                # One of them may be the reason: the others must not suffer from it.
                middle = len(claimed) // 2
                await self._attempt(group, kind, claimed[:middle])
                await self._attempt(group, kind, claimed[middle:])
            else:
                await self._record(kind, claimed, error)
        except TimeoutError:
            await self._record(kind, claimed, ModelTimedOut(transient=True))
        except ModelError as error:
            await self._record(kind, claimed, error)
        except UnknownModel as error:
            # It was configured when the text was stored, and may be so again.
            await self._record_failure(kind, claimed, str(error), LONGEST_WAIT_SECONDS)
        except BackendError:
            raise
        except Exception:
            log.exception("embedding.failed", extra={"model": model})
            await self._record(kind, claimed, ModelError(_INTERNAL_ERROR, transient=True))
        else:
            await self._services.store.write(
                lambda tx: save_vectors(_KINDS[kind](tx), claimed, made.vectors)
            )
            self._start_preparing(group, kind, model, made.vectors[0].dimensions)

    async def _record(self, kind: str, claimed: Sequence[DueText], error: ModelError) -> None:
        wait = None
        if error.transient:
            wait = retry_wait_seconds(
                claimed[0].attempts,
                requested_seconds=error.retry_after_seconds,
                seed=str(claimed[0].position),
            )
        await self._record_failure(kind, claimed, str(error), wait)

    async def _record_failure(
        self, kind: str, claimed: Sequence[DueText], why: str, wait_seconds: float | None
    ) -> None:
        due_at = None
        if wait_seconds is not None:
            due_at = self._services.clock.now() + timedelta(seconds=wait_seconds)
        await self._services.store.write(
            lambda tx: _KINDS[kind](tx).record_failure(claimed, why, due_at)
        )
        fields = {"model": claimed[0].model, "count": len(claimed), "why": why, "next_at": due_at}
        if due_at is None:
            log.warning("embedding.given_up", extra=fields)
        else:
            log.warning("embedding.delayed", extra=fields)

    async def _prepare_all(self, group: asyncio.TaskGroup) -> None:
        """Prepare the search of the vectors that are there already, for instance if pgvector was installed meanwhile."""
        for kind, choose in _KINDS.items():
            try:
                models = await self._services.store.read(lambda tx, of=choose: of(tx).list_models())  # type: ignore[misc]  # mypy does not see the default
            except BackendError:
                log.exception("store.unreachable", extra={"while": "preparing the search"})
                return
            for model, dimensions in models:
                self._start_preparing(group, kind, model, dimensions)

    def _start_preparing(
        self, group: asyncio.TaskGroup, kind: str, model: str, dimensions: int
    ) -> None:
        key = (kind, model, dimensions)
        if key not in self._prepared:
            self._prepared.add(key)
            group.create_task(self._prepare(*key), name=f"search of {model}")

    async def _prepare(self, kind: str, model: str, dimensions: int) -> None:
        def work(tx: Transaction) -> bool:
            return _KINDS[kind](tx).prepare_search(model, dimensions)

        try:
            while await self._services.store.write(work):
                pass
        except BackendError:
            # Searches work without it. The next vectors of the model are a reason to try again.
            self._prepared.discard((kind, model, dimensions))
            log.exception("store.unreachable", extra={"while": "preparing the search"})
        except Exception:
            log.exception("embedding.failed", extra={"model": model})


def _split(due: Sequence[DueText]) -> Iterator[Sequence[DueText]]:
    """Batches of texts that are for one model."""
    by_model = attrgetter("model")
    for _, group in groupby(sorted(due, key=by_model), by_model):
        texts = list(group)
        for start in range(0, len(texts), BATCH_TEXTS):
            yield texts[start : start + BATCH_TEXTS]
