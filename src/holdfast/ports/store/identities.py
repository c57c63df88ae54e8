"""Identities, and which agents and blocks they are attached to."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from holdfast.core.identities import Identity, IdentityQuery


class IdentityLinks(Protocol):
    """The links of identities with one kind of holders: agents, or blocks."""

    def attach(
        self, identity_ids: Collection[str], holder_ids: Collection[str], now: datetime
    ) -> None:
        """Attach each of the identities to each of the holders. One that is attached already stays so."""
        ...

    def detach(self, identity_ids: Collection[str], holder_ids: Collection[str]) -> None:
        """Detach each of the identities from each of the holders. One that is not attached is ignored."""
        ...

    def holder_ids(self, identity_ids: Collection[str]) -> Mapping[str, Sequence[str]]:
        """Return the ids of the holders of each identity, in the order in which they were attached."""
        ...


class Identities(Protocol):
    """A key is unique in its project, and among the identities without a project. Who adds or saves an identity looks for
    its key first: what two do at the same moment is a conflict, after which the transaction is run again."""

    @property
    def agents(self) -> IdentityLinks: ...
    @property
    def blocks(self) -> IdentityLinks: ...

    def add(self, identity: Identity) -> None:
        """Store a new identity, which is attached to nothing yet."""
        ...

    def get(self, organization_id: str, identity_id: str) -> Identity:
        """Return the identity. NotFound: ``Identity not found with id='<id>'``."""
        ...

    def get_for_update(self, organization_id: str, identity_id: str) -> Identity:
        """As ``get``, and lock the identity until the end of the transaction. For whoever saves what was read."""
        ...

    def find(self, organization_id: str, identity_ids: Collection[str]) -> Sequence[Identity]:
        """Return these identities in this order. NotFound, as for ``get``, if one of them does not exist."""
        ...

    def find_by_key(
        self, organization_id: str, identifier_key: str, project_id: str | None
    ) -> Identity | None:
        """Return the identity with this key in this project, or, for None, without a project. It is locked until the end of
        the transaction."""
        ...

    def save(self, identity: Identity) -> None:
        """Replace the identity. Its links stay."""
        ...

    def delete(self, organization_id: str, identity_id: str) -> None:
        """Delete the identity, and detach it from all agents and blocks."""
        ...

    def list(self, organization_id: str, query: IdentityQuery) -> Sequence[Identity]:
        """Return one page of the identities that match."""
        ...

    def count(self, organization_id: str, query: IdentityQuery) -> int:
        """Count the identities that match, on all pages."""
        ...

    def list_of_agents(self, agent_ids: Collection[str]) -> Mapping[str, Sequence[Identity]]:
        """Return the identities of each agent, in the order in which they were attached."""
        ...
