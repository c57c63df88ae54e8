"""The relevance set in a store, searched by words, by vectors, and by both."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from msgspec.structs import replace

from bench.relevance.relevance_set import Search, load, measure_recall
from holdfast.core.archives import Archive
from holdfast.core.embeddings import EmbeddedText, QueryVector
from holdfast.core.ids import DEFAULT_ORGANIZATION_ID
from holdfast.core.passages import FoundPassage, Passage, PassageFilter
from holdfast.ports.embedder import Embedder
from holdfast.ports.store import Store, Transaction

WORDS: Final = "words"
VECTORS: Final = "vectors"
BOTH: Final = "words and vectors"

_ORG: Final = DEFAULT_ORGANIZATION_ID
_NOW: Final = datetime(2026, 1, 1, tzinfo=UTC)
_ARCHIVE: Final = Archive(
    id="archive-relevance", organization_id=_ORG, name="relevance", created_at=_NOW, updated_at=_NOW
)
_WHERE: Final = PassageFilter(archive_ids=(_ARCHIVE.id,))
_BATCH: Final = 32
# More than both lists have, so that none of a list is cut off.
_ALL: Final = 500


class StoredRelevance:
    """``model``: the handle of the embedder's model that makes vectors; without one, search is by words only."""

    def __init__(self, store: Store, embedder: Embedder | None = None, model: str = "") -> None:
        self._store = store
        self._embedder = embedder
        self._model = model
        self._set = load()

    async def measure(self) -> Mapping[str, Mapping[str, float]]:
        """The recall of each kind of search, by language."""
        await self._fill()
        kinds: dict[str, Search] = {WORDS: self._by_words}
        if self._embedder is not None:
            kinds |= {VECTORS: self._by_vectors, BOTH: self._by_both}
        return {
            kind: await measure_recall(self._set.questions, search)
            for kind, search in kinds.items()
        }

    async def _fill(self) -> None:
        passages = [
            Passage(
                id=key,
                organization_id=_ORG,
                archive_id=_ARCHIVE.id,
                text=text,
                created_at=_NOW,
                updated_at=_NOW,
            )
            for key, text in self._set.texts.items()
        ]

        def store(tx: Transaction) -> Sequence[Passage]:
            tx.archives.add(replace(_ARCHIVE, embedding=self._model or None))
            return tx.passages.add(passages, model=self._model or None)

        stored = await self._store.write(store)
        if self._embedder is not None:
            await self._add_vectors(self._embedder, stored)

    async def _add_vectors(self, embedder: Embedder, passages: Sequence[Passage]) -> None:
        rows: list[EmbeddedText] = []
        for start in range(0, len(passages), _BATCH):
            batch = passages[start : start + _BATCH]
            made = await embedder.embed(self._model, [passage.text for passage in batch])
            rows += [
                EmbeddedText(passage.position, self._model, vector)
                for passage, vector in zip(batch, made.vectors, strict=True)
            ]
        await self._store.write(lambda tx: tx.passage_vectors.save(rows))

    async def _by_words(self, query: str, limit: int) -> Sequence[str]:
        found = await self._store.read(lambda tx: tx.passages.search(_ORG, _WHERE, query, limit))
        return _keys(found)

    async def _by_vectors(self, query: str, limit: int) -> Sequence[str]:
        ranked = [
            (item.match.vector_rank, item)
            for item in await self._find(query, _ALL)
            if item.match.vector_rank is not None
        ]
        ranked.sort(key=lambda pair: pair[0])
        return _keys([item for _, item in ranked[:limit]])

    async def _by_both(self, query: str, limit: int) -> Sequence[str]:
        return _keys(await self._find(query, limit))

    async def _find(self, query: str, limit: int) -> Sequence[FoundPassage]:
        if self._embedder is None:
            return ()
        made = await self._embedder.embed(self._model, [query], is_query=True)
        vectors = [QueryVector(self._model, made.vectors[0])]
        return await self._store.read(
            lambda tx: tx.passages.search(_ORG, _WHERE, query, limit, vectors)
        )


def _keys(found: Sequence[FoundPassage]) -> Sequence[str]:
    return [item.passage.id for item in found]
