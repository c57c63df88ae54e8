"""The links of identities with agents and blocks, and filters by them."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from sqlalchemy import Column, ColumnElement, Connection, delete, exists, select
from sqlalchemy.dialects import postgresql, sqlite

from holdfast.adapters.store import tables

_identities = tables.identities


class SqlIdentityLinks:
    """``holder``: the column of a table of links with the id of the agent, or of the block."""

    def __init__(self, connection: Connection, holder: Column[str]) -> None:
        self._connection = connection
        self._dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
        self._holder = holder
        self._links = holder.table

    def attach(
        self, identity_ids: Collection[str], holder_ids: Collection[str], now: datetime
    ) -> None:
        # Sorted, so that two transactions do not wait for each other.
        rows = [
            {"identity_id": identity_id, self._holder.name: holder_id, "attached_at": now}
            for identity_id in sorted(identity_ids)
            for holder_id in sorted(holder_ids)
        ]
        if rows:
            self._connection.execute(
                self._dialect.insert(self._links).on_conflict_do_nothing(), rows
            )

    def detach(self, identity_ids: Collection[str], holder_ids: Collection[str]) -> None:
        self._connection.execute(
            delete(self._links).where(
                self._links.c.identity_id.in_(identity_ids), self._holder.in_(holder_ids)
            )
        )

    def holder_ids(self, identity_ids: Collection[str]) -> Mapping[str, Sequence[str]]:
        found: dict[str, list[str]] = {identity_id: [] for identity_id in identity_ids}
        links = self._links.c
        rows = self._connection.execute(
            select(links.identity_id, self._holder)
            .where(links.identity_id.in_(list(found)))
            .order_by(links.attached_at, self._holder)
        )
        for identity_id, holder_id in rows:
            found[identity_id].append(holder_id)
        return found


def identity_conditions(
    owner: Column[str],
    holder: Column[str],
    identity_id: str | None,
    identifier_keys: Collection[str],
) -> list[ColumnElement[bool]]:
    """The conditions that an object has the identity, and one with any of the keys. ``owner`` is the id of the object;
    ``holder`` the column of the table of links with that id."""
    links = holder.table.c
    conditions: list[ColumnElement[bool]] = []
    if identity_id is not None:
        conditions.append(exists().where(holder == owner, links.identity_id == identity_id))
    if identifier_keys:
        conditions.append(
            exists().where(
                holder == owner,
                links.identity_id == _identities.c.id,
                _identities.c.identifier_key.in_(identifier_keys),
            )
        )
    return conditions
