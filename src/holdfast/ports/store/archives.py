"""Archives, and which agents look things up in them."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from holdfast.core.archives import Archive, ArchiveQuery


class Archives(Protocol):
    """An agent inserts into its default archive: the one that it owns, else the one that was attached first."""

    def add(self, archive: Archive) -> None:
        """Store a new archive, which no agent has yet."""
        ...

    def get(self, organization_id: str, archive_id: str) -> Archive:
        """Return the archive. NotFound: ``Archive with ID <id> not found``."""
        ...

    def hold(self, organization_id: str, archive_id: str) -> Archive:
        """Return the archive as ``get`` does. It does not change before the end of the transaction, so that its new passages
        get vectors of its model."""
        ...

    def get_for_update(self, organization_id: str, archive_id: str) -> Archive:
        """Return the archive. Until the end of the transaction others that ask for it in this way, or hold it, wait."""
        ...

    def find(self, organization_id: str, archive_ids: Collection[str]) -> Sequence[Archive]:
        """Return those of the archives that exist."""
        ...

    def save(self, archive: Archive) -> None:
        """Replace the archive."""
        ...

    def delete(self, organization_id: str, archive_id: str) -> None:
        """Delete the archive with its passages, and detach it from every agent."""
        ...

    def list(self, organization_id: str, query: ArchiveQuery) -> Sequence[Archive]:
        """Return one page of the archives that match."""
        ...

    def attach(
        self, agent_id: str, archive_id: str, now: datetime, *, is_owner: bool = False
    ) -> None:
        """Attach the archive to the agent. One that is attached already stays so and loses its owner, if it had one. An
        agent owns one archive at most: a second one is a conflict, after which the transaction is run again."""
        ...

    def detach(self, agent_id: str, archive_id: str) -> None:
        """Detach the archive; nothing happens if it is not attached."""
        ...

    def list_of_agents(self, agent_ids: Collection[str]) -> Mapping[str, Sequence[Archive]]:
        """Return the archives of each agent, the default archive first, then in the order in which they were attached."""
        ...
