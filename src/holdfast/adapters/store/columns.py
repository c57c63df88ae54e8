"""Column types that are stored in the same way on SQLite and PostgreSQL."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Generic, TypeVar

import msgspec
from sqlalchemy import BigInteger, Text
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator

from holdfast.errors import InvalidArgument

E = TypeVar("E", bound=StrEnum)

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(dict[str, Any])
_strings_decoder = msgspec.json.Decoder(tuple[str, ...])

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Instant(TypeDecorator[datetime]):
    """A timezone-aware datetime, stored as microseconds since 1970. It is read back exactly, in UTC."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, _dialect: Dialect) -> int | None:
        return None if value is None else to_micros(value)

    def result_processor(
        self, _dialect: Dialect, _coltype: object
    ) -> Callable[[int | None], datetime | None]:
        return _from_micros


class EnumText(TypeDecorator[E], Generic[E]):
    """A member of an enum, stored as its value."""

    impl = Text
    cache_ok = True

    def __init__(self, enum: type[E]) -> None:
        self.enum = enum
        self._members = {None: None} | {member.value: member for member in enum}
        super().__init__()

    def process_bind_param(self, value: E | str | None, _dialect: Dialect) -> str | None:
        return None if value is None else self.enum(value).value

    def result_processor(
        self, _dialect: Dialect, _coltype: object
    ) -> Callable[[str | None], E | None]:
        return self._members.__getitem__


class Json(TypeDecorator[dict[str, Any]]):
    """A JSON object, stored as text."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: dict[str, Any] | None, _dialect: Dialect) -> str | None:
        return None if value is None else to_json(value)

    def result_processor(
        self, _dialect: Dialect, _coltype: object
    ) -> Callable[[str | None], dict[str, Any] | None]:
        return _object_from_json


class StringList(TypeDecorator[tuple[str, ...]]):
    """A list of strings, stored as JSON text."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: tuple[str, ...] | None, _dialect: Dialect) -> str | None:
        return None if value is None else to_json(value)

    def result_processor(
        self, _dialect: Dialect, _coltype: object
    ) -> Callable[[str | None], tuple[str, ...] | None]:
        return _strings_from_json


def to_json(value: object) -> str:
    """Encode the value as JSON text. InvalidArgument if JSON cannot represent it."""
    try:
        return _encoder.encode(value).decode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(
            "The text holds a lone surrogate, which is not a character."
        ) from error


def _object_from_json(value: str | None) -> dict[str, Any] | None:
    return None if value is None else _decoder.decode(value)


def _strings_from_json(value: str | None) -> tuple[str, ...] | None:
    return None if value is None else _strings_decoder.decode(value)


def _from_micros(value: int | None) -> datetime | None:
    return None if value is None else _EPOCH + timedelta(0, 0, value)


def to_micros(moment: datetime) -> int:
    """Convert to microseconds since 1970. Exact, unlike ``timestamp()``, which returns a float."""
    return (moment - _EPOCH) // _MICROSECOND
