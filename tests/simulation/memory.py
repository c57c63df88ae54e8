"""The archive of a scenario, whose passages get vectors: an embedder that fails or is late, and what must be true of the
passages in the end."""

import asyncio
from collections.abc import Sequence
from typing import Final

from tests.simulation.chance import Chance, InjectedError
from tests.simulation.clock import DAWN
from tests.simulation.disk import Disk
from tests.simulation.ledger import Ledger

from holdfast.core.archives import Archive
from holdfast.core.embeddings import Embeddings, to_vector
from holdfast.core.ids import DEFAULT_ORGANIZATION_ID
from holdfast.core.paging import Page
from holdfast.core.passages import PassageFilter
from holdfast.engine.embedding import ATTEMPT_SECONDS, CLAIM_SECONDS
from holdfast.errors import ModelOverloaded, ModelRejectedRequest
from holdfast.ports.store import Transaction

MODEL: Final = "simulated/words"
ARCHIVE: Final = Archive(
    id="archive-00000000-0000-4000-8000-000000000001",
    organization_id=DEFAULT_ORGANIZATION_ID,
    name="notes",
    embedding=MODEL,
    created_at=DAWN,
    updated_at=DAWN,
)
# A text that the model always refuses.
REFUSED: Final = "unspeakable"
# More than one batch, and more than a request embeds at once.
MANY: Final = 40
# The claim of a server that died may have to expire, and a text may have been tried some times.
PATIENCE_SECONDS: Final = 4 * CLAIM_SECONDS


class SimulatedEmbedder:
    """At random it answers, fails, is slow or hangs."""

    def __init__(self, chance: Chance) -> None:
        self._chance = chance

    def is_configured(self, handle: str) -> bool:
        return handle == MODEL

    async def embed(
        self, handle: str, texts: Sequence[str], *, is_query: bool = False
    ) -> Embeddings:
        await self._chance.pause()
        if self._chance.happens(0.1):
            raise ModelOverloaded("busy", transient=True)
        if self._chance.happens(0.05):
            raise InjectedError("a bug of the embedder")
        if self._chance.happens(0.05):
            await asyncio.sleep(self._chance.random.uniform(1.0, 2 * ATTEMPT_SECONDS))
        if any(REFUSED in text for text in texts):
            raise ModelRejectedRequest("no")
        return Embeddings(vectors=tuple(to_vector([float(len(text)), 1.0]) for text in texts))


class Memory:
    """What clients were told about the archive, and what must be true of it."""

    def __init__(self, disk: Disk, ledger: Ledger) -> None:
        self._disk = disk
        self._ledger = ledger
        # The passages of inserts that were answered.
        self.accepted: set[str] = set()

    def create(self) -> None:
        self._disk.write(lambda tx: tx.archives.add(ARCHIVE))

    async def settle(self) -> None:
        """Without further faults each passage gets its vector, unless the model refuses its text."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE_SECONDS
        while waiting := self._disk.read(_list_due):
            self._ledger.expect(loop.time() < deadline, f"{waiting} wait for their vectors")
            await asyncio.sleep(2.0)
        self._disk.read(self._check)

    def _check(self, tx: Transaction) -> None:
        where = PassageFilter(archive_ids=(ARCHIVE.id,))
        stored = tx.passages.list(DEFAULT_ORGANIZATION_ID, where, Page(limit=10_000))
        lost = self.accepted - {passage.id for passage in stored}
        self._ledger.expect(not lost, f"the passages {lost} are lost")
        refused = sum(REFUSED in passage.text for passage in stored)
        progress = tx.passages.archive_progress(ARCHIVE.id, MODEL)
        has_all = progress.embedded == len(stored) - refused and progress.given_up == refused
        self._ledger.expect(has_all, f"{len(stored)} passages, {refused} refused: {progress}")


def _list_due(tx: Transaction) -> list[int]:
    later = DAWN.replace(year=DAWN.year + 1)
    return [text.position for text in tx.passage_vectors.list_due(later, 10)]
