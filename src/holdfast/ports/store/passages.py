"""Passages of archives, with their index of words."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from holdfast.core.embeddings import EmbeddingProgress, QueryVector
from holdfast.core.paging import Page
from holdfast.core.passages import FoundPassage, Passage, PassageFilter


class Passages(Protocol):
    def add(
        self,
        passages: Sequence[Passage],
        *,
        model: str | None = None,
        due_at: datetime | None = None,
    ) -> Sequence[Passage]:
        """Store new passages; return them with their positions. They can be found by their words at once. ``model``: the
        handle of the model that is to make their vectors, at once or not before ``due_at``."""
        ...

    def get(self, organization_id: str, passage_id: str) -> Passage:
        """Return the passage. NotFound: ``Passage with id <id> not found in database.``"""
        ...

    def find_same(self, archive_id: str, text: str) -> Passage | None:
        """Return the oldest passage of the archive with the same text, whatever its case and spaces."""
        ...

    def delete(self, organization_id: str, passage_id: str) -> None:
        """Delete the passage."""
        ...

    def delete_matching(
        self, organization_id: str, where: PassageFilter, limit: int | None = None
    ) -> int:
        """Delete the passages that match, at most so many; return how many they were."""
        ...

    def delete_of_run(self, run_id: str) -> int:
        """Delete the passages that the run has written; return how many they were."""
        ...

    def list(self, organization_id: str, where: PassageFilter, page: Page) -> Sequence[Passage]:
        """Return one page of the passages that match, by the time of their creation. ``after`` means newer and ``before``
        older passages in both directions. NotFound ``No Passage found with id <cursor>``."""
        ...

    def list_page(
        self, organization_id: str, where: PassageFilter, page: Page
    ) -> Sequence[Passage]:
        """The same with the cursors of all other lists: ``after`` is the next page, ``before`` the previous one."""
        ...

    def search(
        self,
        organization_id: str,
        where: PassageFilter,
        query: str,
        limit: int,
        vectors: Sequence[QueryVector] = (),
    ) -> Sequence[FoundPassage]:
        """Return the passages that match and have words of the query, or whose vectors are nearest to it, best first: more
        words, and rarer ones, are better. A query without any word, such as one of punctuation, must be contained as it is.
        ``vectors``: what the query means to each model. It is compared with the vectors of the containers of that model."""
        ...

    def embedding_models(
        self, organization_id: str, where: PassageFilter
    ) -> Mapping[str, Sequence[str]]:
        """Return the models of the archives or folders that the filter means, with the ids of those of each model."""
        ...

    def embedding_progress(self, file_id: str) -> EmbeddingProgress:
        """Count the passages of the file by what has become of their vectors. One that waits for vectors of several models
        counts once."""
        ...

    def count_vector_bytes(self, organization_id: str) -> int:
        """Return how many bytes the vectors of all passages have."""
        ...

    def archive_progress(self, archive_id: str, model: str) -> EmbeddingProgress:
        """Count the passages of the archive by what has become of their vectors of this model."""
        ...

    def list_without_vector(self, archive_id: str, model: str, limit: int) -> Sequence[int]:
        """Return the positions of up to ``limit`` passages of the archive that neither have a vector of the model nor wait
        for one, the oldest first."""
        ...

    def count_by_agent(self, agent_ids: Collection[str]) -> Mapping[str, int]:
        """Count the passages in the archives of each agent."""
        ...

    def tags_by_agent(self, agent_ids: Collection[str]) -> Mapping[str, Sequence[str]]:
        """Return the different tags in the archives of each agent, sorted."""
        ...
