"""Vectors of passages or of messages, and the texts whose vectors are still to be made. Searching them is part of
``Passages`` and ``Messages``."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Protocol

from holdfast.core.embeddings import DueText, EmbeddedText


class Vectors(Protocol):
    """A text waits for the vector of a model until it has one, is deleted, or is given up. The container of a passage is
    its archive or folder, that of a message its agent."""

    def list_due(self, now: datetime, limit: int) -> Sequence[DueText]:
        """Return up to ``limit`` texts whose vectors may be made now, the longest due first."""
        ...

    def next_due_at(self, after: datetime) -> datetime | None:
        """Return the time at which the next text after ``after`` is due; None if there is none."""
        ...

    def claim(self, due: Sequence[DueText], until: datetime) -> Sequence[DueText]:
        """Claim those of the texts that have not changed since they were read, and return them with one attempt more. No
        other server can claim them before ``until``."""
        ...

    def release(self, claimed: Sequence[DueText], due_at: datetime) -> None:
        """Give up a claim whose attempt did not finish. Nothing happens to texts that another server has claimed."""
        ...

    def record_failure(
        self, claimed: Sequence[DueText], error: str, due_at: datetime | None
    ) -> None:
        """Store why an attempt failed and when the next one may begin; None: never. Nothing happens to texts that another
        server has claimed."""
        ...

    def find_dimensions(self, container_id: str, model: str) -> int | None:
        """Return the length of the model's vectors in the container; None if it has none."""
        ...

    def save(self, texts: Sequence[EmbeddedText]) -> None:
        """Store the vectors of texts that wait for them. One that does not wait is left as it is: it has its vector, or it
        was deleted."""
        ...

    def schedule_missing(
        self, container_id: str, model: str, positions: Collection[int], now: datetime
    ) -> int:
        """Let vectors of the model be made of those of the texts that neither have one nor wait for it; return how many they
        are."""
        ...

    def retry_given_up(self, container_id: str, model: str, now: datetime) -> int:
        """Let the model try again with the texts that were given up; return how many they are."""
        ...

    def delete_other_models(self, container_id: str, model: str) -> None:
        """Delete the vectors of all other models in the container. Nothing waits for them any more."""
        ...

    def count_waiting(self, model: str, container_ids: Collection[str]) -> int:
        """Count the texts in the containers that have no vector of the model yet, up to 10,000."""
        ...

    def list_models(self) -> Sequence[tuple[str, int]]:
        """Return the models that have made vectors, with the length of these. All vectors are read."""
        ...

    def prepare_search(self, model: str, dimensions: int) -> bool:
        """Do a part of what makes a search of the model's vectors fast; return whether there is more to do. Searches work
        meanwhile, and without it."""
        ...
