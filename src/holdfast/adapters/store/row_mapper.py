"""Conversion of core values to rows and back. A field with a column of its name is stored there, all other fields in
``body``.

Fields are not listed by hand, so a new field of a value is stored without a change here.
"""

from collections.abc import Collection, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, Generic, NotRequired, Required, TypedDict, TypeVar

import msgspec
from sqlalchemy import Table

from holdfast.adapters.store.columns import to_json
from holdfast.errors import InvalidArgument

T = TypeVar("T", bound=msgspec.Struct)

_IMMUTABLE_COLUMNS = frozenset(
    {"id", "organization_id", "agent_id", "thread_id", "run_id", "created_at"}
)


class JsonBody(Generic[T]):
    """Some fields of a value, encoded as one JSON text."""

    def __init__(self, kind: type[T], names: Collection[str]) -> None:
        # A struct needs the fields without a default first.
        fields = sorted(
            (field for field in msgspec.structs.fields(kind) if field.name in names),
            key=lambda field: not field.required,
        )
        self._struct = msgspec.defstruct(
            f"{kind.__name__}Body", [_struct_field(field) for field in fields], omit_defaults=True
        )
        self._values = attrgetter(*(field.name for field in fields))
        # Decoded to a dict with only the fields in the text: the value's class has the defaults.
        decoder: msgspec.json.Decoder[dict[str, Any]] = msgspec.json.Decoder(
            TypedDict(
                f"{kind.__name__}Fields", {field.name: _typed_dict_field(field) for field in fields}
            )  # type: ignore[operator] # mypy accepts only literal fields
        )
        self.decode = decoder.decode

    def encode(self, value: T) -> str:
        return to_json(self._struct(*self._values(value)))


class RowMapper(Generic[T]):
    """Maps one kind of value to its table. Fields in ``stored_elsewhere`` are not part of the row; columns in
    ``skipped_by_save`` are written when the row is added and not when it is saved."""

    def __init__(
        self,
        kind: type[T],
        table: Table,
        *,
        stored_elsewhere: Collection[str] = (),
        skipped_by_save: Collection[str] = (),
    ) -> None:
        names = [field.name for field in msgspec.structs.fields(kind)]
        self._kind = kind
        self._names = tuple(name for name in names if name in table.c)
        self._pair_with_names = partial(zip, self._names)
        self._values = attrgetter(*self._names)
        self._text_columns = tuple(n for n in self._names if table.c[n].type.python_type is str)
        self._body = JsonBody(
            kind, [n for n in names if n not in self._names and n not in stored_elsewhere]
        )
        # The columns that saving writes. Writing the immutable ones would update their indexes each time.
        self.mutable_columns = tuple(
            c.name for c in table.c if c.name not in {*_IMMUTABLE_COLUMNS, *skipped_by_save}
        )
        # The columns that a query selects, in the order in which ``from_row`` reads them.
        self.columns = (*(table.c[name] for name in self._names), table.c.body)

    def to_row(self, value: T) -> dict[str, Any]:
        row = dict(zip(self._names, self._values(value), strict=True))
        for name in self._text_columns:
            refuse_nul(name, row[name])
        row["body"] = self._body.encode(value)
        return row

    def from_row(self, row: Sequence[Any], **stored_elsewhere: Any) -> T:
        """Return the value. ``columns`` come first in the row; the fields that are stored elsewhere are arguments."""
        fields = self._body.decode(row[len(self._names)])
        fields.update(self._pair_with_names(row))
        return self._kind(**fields, **stored_elsewhere)


def _typed_dict_field(field: msgspec.structs.FieldInfo) -> Any:
    return Required[field.type] if field.required else NotRequired[field.type]


def _struct_field(field: msgspec.structs.FieldInfo) -> tuple[Any, ...]:
    """Return the field in the form that ``defstruct`` takes."""
    if field.default_factory is not msgspec.NODEFAULT:
        return field.name, field.type, msgspec.field(default_factory=field.default_factory)
    if field.default is not msgspec.NODEFAULT:
        return field.name, field.type, field.default
    return field.name, field.type


def refuse_nul(name: str, text: str | None) -> None:
    """Raise InvalidArgument if the text contains NUL, which PostgreSQL cannot store in a text column."""
    if text is not None and "\x00" in text:
        raise InvalidArgument(f"{name} must not contain NUL characters.")
