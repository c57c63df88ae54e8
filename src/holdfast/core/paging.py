"""Paging through lists: a page of rows relative to a cursor (wire-v1 §1.10)."""

from enum import StrEnum

from msgspec import Struct


class Order(StrEnum):
    ASC = "asc"
    DESC = "desc"


class Page(Struct, frozen=True, kw_only=True):
    """``after`` is the next page in sort order, ``before`` the previous one."""

    limit: int
    order: Order = Order.DESC
    order_by: str = "created_at"
    after: str | None = None
    before: str | None = None
