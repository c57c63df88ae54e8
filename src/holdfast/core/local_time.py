"""Times of an agent: read and shown in its timezone."""

from datetime import UTC, datetime, time, tzinfo
from zoneinfo import ZoneInfo


def find_zone(name: str) -> tzinfo:
    # UTC must work on machines without a timezone database too.
    return UTC if name == "UTC" else ZoneInfo(name)


def render_local(moment: datetime, timezone: str) -> str:
    """The time in ISO 8601 with the offset of the timezone."""
    try:
        return moment.astimezone(find_zone(timezone)).isoformat()
    except OverflowError:  # the year would be 0 or 10000
        return moment.isoformat()


def parse_local(text: str, timezone: str) -> datetime:
    """Parse a date or time of ISO 8601. Without an offset it is of the timezone. ValueError if it is neither."""
    return in_zone(datetime.fromisoformat(text), timezone)


def in_zone(moment: datetime, timezone: str) -> datetime:
    """The time, which is of the timezone if it has no offset."""
    return moment if moment.tzinfo else moment.replace(tzinfo=find_zone(timezone))


def range_end(moment: datetime) -> datetime:
    """The last moment that a range up to here includes: of a date, which is a time at midnight, the whole day."""
    if moment.time() != time.min:
        return moment
    return datetime.combine(moment.date(), time.max, moment.tzinfo)
