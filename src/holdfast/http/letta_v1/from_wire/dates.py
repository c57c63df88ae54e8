"""Dates in requests (wire-v1 §1.9)."""

from datetime import UTC, datetime


def as_utc(moment: datetime | None) -> datetime | None:
    """A moment without an offset is meant in UTC (wire-v1 §1.9)."""
    return moment.replace(tzinfo=UTC) if moment and moment.tzinfo is None else moment
