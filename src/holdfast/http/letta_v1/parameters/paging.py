"""The paging parameters of a list. Each list has its own defaults (wire-v1 §1.10)."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any

from fastapi import Query
from pydantic import JsonValue

from holdfast.core.ids import Kind, id_pattern, is_id
from holdfast.core.paging import Order, Page
from holdfast.errors import InvalidArgument
from holdfast.http.letta_v1.schemas.names import MAX_NAME_CHARS

MAX_LIMIT = 1_000


def paging(
    cursor: Kind | None,
    *other_cursors: Kind,
    limit: int,
    order: Order = Order.DESC,
    order_by: tuple[str, ...] = ("created_at",),
) -> Callable[..., Awaitable[Page]]:
    """Build a dependency: ``Annotated[Page, Depends(paging(Kind.TOOL, limit=50))]``.

    ``cursor``: what the ids in ``before`` and ``after`` are of; None if they are texts. ``other_cursors``: what else they may
    be of. The first of ``order_by`` is the default.
    """
    columns = f"^({'|'.join(order_by)})$"
    kinds = () if cursor is None else (cursor, *other_cursors)
    default_limit, default_order, default_column = limit, order, order_by[0]

    async def page(
        *,
        before: Annotated[str | None, _cursor(kinds, "before")] = None,
        after: Annotated[str | None, _cursor(kinds, "after")] = None,
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
            after=check_cursor(kinds, "after", after),
            before=check_cursor(kinds, "before", before),
        )

    return page


def _cursor(kinds: Sequence[Kind], side: str) -> Any:
    # The form is for OpenAPI only: if the router checked it, the answer would be a 422.
    form: dict[str, JsonValue] = (
        {"pattern": "|".join(map(id_pattern, kinds))} if kinds else {"maxLength": MAX_NAME_CHARS}
    )
    return Query(description=f"Items {side} this id, in sort order.", json_schema_extra=form)


def check_cursor(kinds: Sequence[Kind], name: str, text: str | None) -> str | None:
    """A malformed id is a 400. One that is not known is each list's own affair (wire-v1 §1.10)."""
    if not text:
        return None
    if kinds:
        is_valid = any(is_id(kind, text) for kind in kinds)
        form = " or ".join(f"'{kind}-<uuid4>'" for kind in kinds)
    else:
        is_valid = len(text) <= MAX_NAME_CHARS
        form = f"at most {MAX_NAME_CHARS} characters"
    if not is_valid:
        raise InvalidArgument(f"Invalid cursor {name}={text!r:.100}. Expected format: {form}")
    return text


def _order(ascending: bool | None) -> Order | None:
    if ascending is None:
        return None
    return Order.ASC if ascending else Order.DESC
