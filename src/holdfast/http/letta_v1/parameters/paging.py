"""The paging parameters of a list. Each list has its own defaults (wire-v1 §1.10)."""

from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import Query

from holdfast.core.paging import Order, Page

MAX_LIMIT = 1_000


def paging(
    *, limit: int, order: Order = Order.DESC, order_by: tuple[str, ...] = ("created_at",)
) -> Callable[..., Awaitable[Page]]:
    """Build a dependency: ``Annotated[Page, Depends(paging(limit=50))]``. The first of ``order_by`` is the default."""
    columns = f"^({'|'.join(order_by)})$"
    default_limit, default_order, default_column = limit, order, order_by[0]

    async def page(
        *,
        before: Annotated[
            str | None, Query(description="Items before this id, in sort order.")
        ] = None,
        after: Annotated[
            str | None, Query(description="Items after this id, in sort order.")
        ] = None,
        limit: Annotated[
            int, Query(ge=1, le=MAX_LIMIT, description="How many items at most.")
        ] = default_limit,
        order: Annotated[
            Order | None, Query(description=f"Sort order; '{default_order}' if not given.")
        ] = None,
        order_by: Annotated[
            str | None, Query(pattern=columns, description="What to sort by.")
        ] = None,
        ascending: Annotated[
            bool | None, Query(deprecated=True, description="Old name of order=asc.")
        ] = None,
        sort_by: Annotated[
            str | None,
            Query(pattern=columns, deprecated=True, description="Old name of order_by."),
        ] = None,
    ) -> Page:
        return Page(
            limit=limit,
            order=order or _order(ascending) or default_order,
            order_by=order_by or sort_by or default_column,
            after=after,
            before=before,
        )

    return page


def _order(ascending: bool | None) -> Order | None:
    if ascending is None:
        return None
    return Order.ASC if ascending else Order.DESC
