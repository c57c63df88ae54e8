"""Dates in requests (wire-v1 §1.9)."""

from datetime import UTC, datetime


def as_utc(moment: datetime | None) -> datetime | None:
    """A date without an offset is in UTC."""
    return moment.replace(tzinfo=UTC) if moment and moment.tzinfo is None else moment
