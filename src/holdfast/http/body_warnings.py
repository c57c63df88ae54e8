"""Warnings about fields of a request body whose names look misspelled.

Unknown fields are ignored, never refused. But a name that is close to a known one is probably a mistake, so the
answer tells: under ``warnings`` if it is an object with fixed fields, else (stream, list, map, null) in a header.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from itertools import islice
from typing import Any, get_args, get_origin

from fastapi import Response
from pydantic import AliasChoices, BaseModel
from pydantic.fields import FieldInfo

from holdfast.http.json_response import JsonResponse

WARNINGS_HEADER = "x-holdfast-warnings"

# difflib's ratio. One wrong letter in a name of five is still recognised.
_MIN_SIMILARITY = 0.8
_MAX_WARNINGS = 10
# So many unknown names are compared with the known ones, which takes about 0.2 ms for each.
_MAX_COMPARED = 100
# The caller's own text is repeated up to here.
_MAX_NAME_CHARS = 100

# The fields that an object may have, each with the known fields of the objects in it. None if any may be there.
KnownFields = Mapping[str, "KnownFields | None"]

# For a field that is accepted without effect (``ignored_fields`` of a model): it is never suggested.
_IGNORED: KnownFields = {}


def find_misspellings(value: object, body: object) -> list[str]:
    """A sentence for each field of ``value`` that the type ``body`` has only under a similar name."""
    known = _known_fields(body)
    # Hardly any body has an unknown field: the cheap look comes first.
    if not known or not _has_unknown(value, known):
        return []
    compared = islice(_walk(value, known, ""), _MAX_COMPARED)
    return list(islice(filter(None, compared), _MAX_WARNINGS))


def add_warnings(response: Response, warnings: Sequence[str]) -> None:
    """Add warnings to those that the answer has."""
    if not warnings:
        return
    if isinstance(response, JsonResponse) and response.has_fixed_fields:
        response.extend_field("warnings", warnings)
    else:
        earlier = json.loads(response.headers.get(WARNINGS_HEADER, "[]"))
        response.headers[WARNINGS_HEADER] = json.dumps([*earlier, *warnings])


def _has_unknown(value: object, known: KnownFields) -> bool:
    if isinstance(value, dict):
        for name, inner in value.items():
            if name not in known:
                return True
            if (inner_known := known[name]) and _has_unknown(inner, inner_known):
                return True
    elif isinstance(value, list):
        for item in value:
            if _has_unknown(item, known):
                return True
    return False


def _walk(value: object, known: KnownFields, path: str) -> Iterator[str | None]:
    """A warning, or None if there is no similar name, for each unknown name."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _walk(item, known, f"{path}[{index}]")
    elif isinstance(value, dict):
        for name, inner in value.items():
            if name not in known:
                missing = [other for other in known if other not in value]
                suggestions = [other for other in missing if known[other] is not _IGNORED]
                yield _warn(name, suggestions, path)
            elif inner_known := known[name]:
                yield from _walk(inner, inner_known, f"{path}.{name}")


def _warn(name: str, suggestions: Sequence[str], path: str) -> str | None:
    by_letters = {_letters(suggestion): suggestion for suggestion in suggestions}
    similar = get_close_matches(_letters(name), by_letters, n=1, cutoff=_MIN_SIMILARITY)
    if not similar:
        return None
    where = f"{path}.{name[:_MAX_NAME_CHARS]}".removeprefix(".")
    return f"{where} is not known here and has no effect. Did you mean {by_letters[similar[0]]}?"


def _letters(name: str) -> str:
    """``memoryBlocks`` and ``memory-blocks`` are ``memory_blocks``."""
    return name[:_MAX_NAME_CHARS].lower().replace("_", "").replace("-", "")


@cache
def _known_fields(body: object) -> KnownFields | None:
    return _fields_of_type(body)


def _fields_of_type(annotation: object) -> KnownFields | None:
    """The fields of the model, or of all models in the union or list. None if there is none, or if any field may be there."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return _fields_of_model(annotation)
    if get_origin(annotation) is dict:
        return None
    fields: KnownFields = {}
    for inner in get_args(annotation):
        fields = _merge(fields, _fields_of_type(inner) or {})
    return fields or None


def _fields_of_model(model: type[BaseModel]) -> KnownFields | None:
    if model.model_config.get("extra") == "allow":
        return None
    fields: dict[str, KnownFields | None] = dict.fromkeys(
        getattr(model, "ignored_fields", ()), _IGNORED
    )
    for name, info in model.model_fields.items():
        inner = _fields_of_type(info.annotation)
        fields |= dict.fromkeys((name, *_aliases(info)), inner)
    return fields


def _aliases(info: FieldInfo) -> Iterator[str]:
    alias = info.validation_alias
    choices = alias.choices if isinstance(alias, AliasChoices) else [alias]
    return (choice for choice in choices if isinstance(choice, str))


def _merge(one: KnownFields, other: KnownFields) -> KnownFields:
    merged: dict[str, Any] = {**one}
    for name, inner in other.items():
        known = merged.get(name)
        merged[name] = _merge(known, inner) if known and inner else known or inner
    return merged
