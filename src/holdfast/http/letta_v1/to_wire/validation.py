"""The faults of an invalid request as V1 shows them: one string, not FastAPI's list (wire-v1 §1.11)."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from msgspec import UNSET, UnsetType

from holdfast.core.ids import Kind, id_pattern
from holdfast.http.letta_v1.schemas.names import EXAMPLE_UUID

# The caller's own value is repeated up to here: it may be megabytes.
_MAX_INPUT_CHARS = 500
# At most so many faults are shown.
_MAX_FAULTS = 10

# Their values are in no answer, and a client may log what it is answered.
_SECRET_FIELDS = frozenset(
    {
        "access_key",
        "api_key",
        "args",
        "auth_header",
        "auth_token",
        "custom_headers",
        "env",
        "env_vars",
        "headers",
        "secrets",
        "token",
    }
)
_HIDDEN = "…"
# Also what is not a name of the caller's, such as [key].
_NAME = re.compile(r"[\w.\-\[\]]+")

_KINDS = {id_pattern(kind): kind for kind in Kind}

Fault = Mapping[str, Any]


def describe_faults(faults: Sequence[Fault]) -> str:
    return str([_render_fault(fault) for fault in faults[:_MAX_FAULTS]])


def example_ids(faults: Sequence[Fault]) -> list[str] | UnsetType:
    """A well-formed id for each malformed one in the path. Unset if there is none."""
    kinds = [_path_id_kind(fault) for fault in faults[:_MAX_FAULTS]]
    return [f"{kind}-{EXAMPLE_UUID}" for kind in kinds if kind] or UNSET


def _render_fault(fault: Fault) -> dict[str, Any]:
    kind = _path_id_kind(fault)
    shown = {
        "type": fault["type"],
        "loc": tuple(_shorten(step) for step in _show_path(fault["loc"])),
        "msg": f"String should match pattern '{kind}-{{uuid4}}'"
        if kind
        else _shorten(fault["msg"]),
        "input": _HIDDEN
        if _is_secret(fault["loc"])
        else _shorten(_hide_secrets(fault.get("input"))),
    }
    context = {name: _shorten(value) for name, value in fault.get("ctx", {}).items()}
    return shown | ({"ctx": context} if context else {})


def _path_id_kind(fault: Fault) -> Kind | None:
    if fault["type"] != "string_pattern_mismatch" or fault["loc"][0] != "path":
        return None
    return _KINDS.get(fault["ctx"]["pattern"])


def _show_path(loc: Sequence[object]) -> Iterator[object]:
    """Within secrets only names that look like one: people paste whole headers there."""
    is_secret = False
    for step in loc:
        is_name = not isinstance(step, str) or _NAME.fullmatch(step) is not None
        yield step if is_name or not is_secret else _HIDDEN
        is_secret = is_secret or step in _SECRET_FIELDS


def _is_secret(loc: Sequence[object]) -> bool:
    return any(isinstance(step, str) and step in _SECRET_FIELDS for step in loc)


def _hide_secrets(value: object) -> object:
    """Of what is shown, an object and those within it: deeper ones are in no request with secrets."""
    if not isinstance(value, dict) or _is_long(value):
        return value
    return {
        name: _HIDDEN if name in _SECRET_FIELDS and inner is not None else _hide_secrets(inner)
        for name, inner in value.items()
    }


def _shorten(value: object) -> object:
    if isinstance(value, dict | list) and _is_long(value):
        return f"{type(value).__name__} with {len(value)} entries"
    text = value if isinstance(value, str) else repr(value)
    return value if len(text) <= _MAX_INPUT_CHARS else f"{text[:_MAX_INPUT_CHARS]}…"


def _is_long(value: object) -> bool:
    """Whether the text of the value would be made only to be cut."""
    return sum(islice(_sizes(value), _MAX_INPUT_CHARS)) >= _MAX_INPUT_CHARS


def _sizes(value: object) -> Iterator[int]:
    """For each text within, its length; for each other value, 1."""
    yield max(1, len(value)) if isinstance(value, str) else 1
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _sizes(name)
            yield from _sizes(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _sizes(inner)
