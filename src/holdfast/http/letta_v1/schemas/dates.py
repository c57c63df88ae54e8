"""Dates in requests: ISO 8601, with or without a time and an offset (wire-v1 §1.9)."""

from datetime import UTC, datetime
from typing import Annotated

from pydantic import BeforeValidator

# At the ends of the calendar a date cannot be shown in every timezone.
_FIRST_YEAR, _LAST_YEAR = 2, 9998


def _parse(value: object) -> object:
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        raise ValueError("a date is a text in ISO 8601 format, such as 2024-01-15T14:30:00Z")  # noqa: TRY004 - pydantic takes only ValueError
    moment = datetime.fromisoformat(value)
    if not _FIRST_YEAR <= moment.year <= _LAST_YEAR:
        raise ValueError(f"the year must be between {_FIRST_YEAR} and {_LAST_YEAR}")
    return moment if moment.tzinfo is None else moment.astimezone(UTC)


# A date without an offset has none here either: its timezone is the route's affair. An empty text is no date.
OptionalDate = Annotated[
    datetime | None, BeforeValidator(_parse, json_schema_input_type=str | None)
]
