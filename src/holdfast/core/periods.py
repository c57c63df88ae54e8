"""The first and the last moment of a period that a caller names by dates. A date without an offset is in a given timezone."""

from datetime import UTC, datetime, time, timedelta, tzinfo

_DAY = timedelta(days=1)
_MICROSECOND = timedelta(microseconds=1)


def first_moment(date: datetime | None, zone: tzinfo) -> datetime | None:
    if date is None or date.tzinfo is not None:
        return date
    return date.replace(tzinfo=zone).astimezone(UTC)


def last_moment(date: datetime | None, zone: tzinfo) -> datetime | None:
    """Midnight without an offset is a day without a time: then all of this day is meant."""
    if date is None or date.tzinfo is not None:
        return date
    if date.time() == time.min:
        # As wall-clock time first: a day may have 23 or 25 hours.
        return (date + _DAY).replace(tzinfo=zone).astimezone(UTC) - _MICROSECOND
    return date.replace(tzinfo=zone).astimezone(UTC)
