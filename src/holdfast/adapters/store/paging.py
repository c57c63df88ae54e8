"""A window of a sorted list around cursors (wire-v1 §1.10). The history of messages has its own rule."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Row,
    Select,
    and_,
    func,
    or_,
    select,
    type_coerce,
)
from sqlalchemy.schema import Column

from holdfast.core.paging import Order, Page
from holdfast.errors import InvalidArgument, NotFound

# Sorts after every number that is really stored, so that rows without a value come last.
_LAST = 2**63 - 1

Place = tuple[Any, str]


class Listing:
    """One list of objects: what it can be sorted by, and what an unknown cursor means."""

    def __init__(
        self,
        kind: str,
        identity: Column[str],
        *,
        organization_id: Column[str],
        orders: Mapping[str, ColumnElement[Any]],
        ignores_unknown_cursors: bool = False,
    ) -> None:
        self._kind = kind
        self._id = identity
        self._organization_id = organization_id
        self._orders = orders
        self._lenient = ignores_unknown_cursors

    def window(
        self, connection: Connection, query: Select[Any], organization_id: str, page: Page
    ) -> Sequence[Row[Any]]:
        """The rows of ``query`` on this page, in sort order."""
        key = self._key(page)
        falling = page.order is Order.DESC
        query = query.where(self._organization_id == organization_id)
        after = self._place(connection, organization_id, key, page.after)
        before = self._place(connection, organization_id, key, page.before)
        if after is not None:
            query = query.where(self._beyond(key, after, falling=falling))
        if before is not None:
            query = query.where(self._beyond(key, before, falling=not falling))
        # Only ``before``: the rows nearest to the cursor are wanted, so the walk goes backwards.
        backwards = before is not None and after is None
        if falling is not backwards:
            query = query.order_by(key.desc(), self._id.desc())
        else:
            query = query.order_by(key.asc(), self._id.asc())
        rows = connection.execute(query.limit(max(page.limit, 0))).all()
        return rows[::-1] if backwards else rows

    def _key(self, page: Page) -> ColumnElement[Any]:
        column = self._orders.get(page.order_by)
        if column is None:
            names = ", ".join(sorted(self._orders))
            raise InvalidArgument(f"Cannot sort by {page.order_by}; possible are: {names}.")
        if isinstance(column, Column) and not column.nullable:
            return column
        last = _LAST if page.order is Order.ASC else -_LAST
        return func.coalesce(type_coerce(column, BigInteger), last)

    def _place(
        self,
        connection: Connection,
        organization_id: str,
        key: ColumnElement[Any],
        cursor: str | None,
    ) -> Place | None:
        if cursor is None:
            return None
        found = connection.execute(
            select(key, self._id).where(
                self._id == cursor, self._organization_id == organization_id
            )
        ).first()
        if found is not None:
            return found[0], found[1]
        if self._lenient:
            return None
        raise NotFound(f"No {self._kind} found with id {cursor}")

    def _beyond(
        self, key: ColumnElement[Any], place: Place, *, falling: bool
    ) -> ColumnElement[bool]:
        value, identity = place
        if falling:
            return or_(key < value, and_(key == value, self._id < identity))
        return or_(key > value, and_(key == value, self._id > identity))
