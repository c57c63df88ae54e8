"""Pages of sorted lists, with cursors (wire-v1 §1.10). Lists of messages have their own rule, see ``messages``."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Row,
    Select,
    func,
    literal,
    select,
    tuple_,
    type_coerce,
)
from sqlalchemy.schema import Column

from holdfast.adapters.store.index_hints import without_index
from holdfast.core.paging import Order, Page
from holdfast.errors import InvalidArgument, NotFound

# Larger than every stored number, so that rows without a value come last.
_SORTS_LAST = 2**63 - 1

CursorPosition = tuple[Any, str]


class PagedList:
    """A list of one kind of objects. ``orders`` are the keys that it can be sorted by. Objects without the sort key's
    value come last, or are left out if the key is in ``only_with_value``."""

    def __init__(
        self,
        kind: str,
        identity: Column[str],
        *,
        organization_id: Column[str],
        orders: Mapping[str, ColumnElement[Any]],
        only_with_value: Collection[str] = (),
        ignores_unknown_cursors: bool = False,
    ) -> None:
        self._kind = kind
        self._id = identity
        self._organization_id = organization_id
        self._orders = orders
        self._only_with_value = only_with_value
        self._ignores_unknown_cursors = ignores_unknown_cursors

    def select_page(
        self,
        connection: Connection,
        query: Select[Any],
        organization_id: str,
        page: Page,
        *,
        has_narrower_condition: bool = False,
    ) -> Sequence[Row[Any]]:
        """Return the rows of ``query`` on this page, in sort order. ``has_narrower_condition``: the query has a condition
        that selects fewer rows than the organisation, so its index is used."""
        key = self._sort_key(page)
        descending = page.order is Order.DESC
        owner = (
            without_index(self._organization_id)
            if has_narrower_condition
            else self._organization_id
        )
        query = query.where(owner == organization_id)
        if page.order_by in self._only_with_value:
            query = query.where(key.is_not(None))
        after = self._find_cursor(connection, organization_id, key, page.after)
        before = self._find_cursor(connection, organization_id, key, page.before)
        if after is not None:
            query = query.where(self._is_past(key, after, descending=descending))
        if before is not None:
            query = query.where(self._is_past(key, before, descending=not descending))
        # With ``before`` alone the page ends at the cursor, so it is read backwards from there.
        backwards = before is not None and after is None
        if descending is not backwards:
            query = query.order_by(key.desc(), self._id.desc())
        else:
            query = query.order_by(key.asc(), self._id.asc())
        rows = connection.execute(query.limit(max(page.limit, 0))).all()
        return rows[::-1] if backwards else rows

    def _sort_key(self, page: Page) -> ColumnElement[Any]:
        column = self._orders.get(page.order_by)
        if column is None:
            names = ", ".join(sorted(self._orders))
            raise InvalidArgument(f"Cannot sort by {page.order_by}; possible are: {names}.")
        if isinstance(column, Column) and (
            not column.nullable or page.order_by in self._only_with_value
        ):
            return column
        last = _SORTS_LAST if page.order is Order.ASC else -_SORTS_LAST
        return func.coalesce(type_coerce(column, BigInteger), last)

    def _find_cursor(
        self,
        connection: Connection,
        organization_id: str,
        key: ColumnElement[Any],
        cursor: str | None,
    ) -> CursorPosition | None:
        if cursor is None:
            return None
        found = connection.execute(
            select(key, self._id).where(
                self._id == cursor, self._organization_id == organization_id
            )
        ).first()
        if found is not None and found[0] is not None:
            return found[0], found[1]
        if self._ignores_unknown_cursors:
            return None
        raise NotFound(f"No {self._kind} found with id {cursor}")

    def _is_past(
        self, key: ColumnElement[Any], position: CursorPosition, *, descending: bool
    ) -> ColumnElement[bool]:
        # Compared as one pair, so that an index scan starts right at the cursor.
        value, identity = position
        cursor = tuple_(literal(value, key.type), literal(identity, self._id.type))
        row = tuple_(key, self._id)
        return row < cursor if descending else row > cursor
