"""Answers as bytes: a Struct is encoded once, never validated again, and described to OpenAPI by its type."""

from collections.abc import Mapping
from typing import Any

import msgspec
from fastapi import Response

_REF_TEMPLATE = "#/components/schemas/{name}"
_PLACEHOLDER = "x-documented-type"

# Types in the order of `documented`. Their schemas are only made when somebody asks for OpenAPI:
# making them all at import would delay every start.
_described_types: list[object] = []

_encoder = msgspec.json.Encoder()


def json_response(
    value: object, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    return Response(
        _encoder.encode(value),
        status_code=status,
        headers=dict(headers) if headers else None,
        media_type="application/json",
    )


def describe_response(
    body: object, status: int = 200, description: str = "Successful Response"
) -> dict[int | str, dict[str, Any]]:
    """For ``responses=`` of a route: what the body is; a tuple means any of these. Merge statuses with ``|``."""
    schema = (
        {"anyOf": [_placeholder(one) for one in body]}
        if isinstance(body, tuple)
        else _placeholder(body)
    )
    return {
        status: {"description": description, "content": {"application/json": {"schema": schema}}}
    }


def _placeholder(body: object) -> dict[str, Any]:
    _described_types.append(body)
    return {_PLACEHOLDER: len(_described_types) - 1}


def fill_in_schemas(openapi: dict[str, Any]) -> dict[str, Any]:
    """The OpenAPI document with the schema of each ``documented`` type in its place."""
    schemas, components = msgspec.json.schema_components(
        _described_types, ref_template=_REF_TEMPLATE
    )
    known = openapi.setdefault("components", {}).setdefault("schemas", {})
    for name, schema in components.items():
        # Enumerations are shared by bodies that come in and bodies that go out, nothing else is.
        if "enum" not in known.setdefault(name, schema) and known[name] is not schema:
            raise ValueError(f"two schemas have the name {name}")
    _replace_placeholders(openapi, schemas)
    return openapi


def _replace_placeholders(node: object, schemas: tuple[dict[str, Any], ...]) -> None:
    if isinstance(node, dict):
        number = node.pop(_PLACEHOLDER, None)
        if number is not None:
            node.update(schemas[number])
        else:
            for inner in node.values():
                _replace_placeholders(inner, schemas)
    elif isinstance(node, list):
        for inner in node:
            _replace_placeholders(inner, schemas)
