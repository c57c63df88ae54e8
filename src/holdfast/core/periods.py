"""The first and the last moment of a period that a caller names by dates. A date without an offset is in a given timezone."""

from datetime import datetime, time, tzinfo

# If the clock shows it twice, when summer time ends at midnight, the second one.
_END_OF_DAY = time.max.replace(fold=1)


def first_moment(date: datetime | None, zone: tzinfo) -> datetime | None:
    if date is None or date.tzinfo is not None:
        return date
    # Not converted to UTC: that would fail at the ends of the calendar.
    return date.replace(tzinfo=zone)


def last_moment(date: datetime | None, zone: tzinfo) -> datetime | None:
    """Midnight without an offset is a day without a time: then all of this day is meant."""
    if date is None or date.tzinfo is not None:
        return date
    if date.time() == time.min:
        return datetime.combine(date, _END_OF_DAY, zone)
    return date.replace(tzinfo=zone)
