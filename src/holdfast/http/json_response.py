"""JSON answers. A Struct is encoded without another validation, and OpenAPI gets its description from its type."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from fastapi import Response

_REF_TEMPLATE = "#/components/schemas/{name}"
_PLACEHOLDER = "x-documented-type"

# The types of ``describe_response``, in order. Their schemas are only built when OpenAPI is requested: building
# them all at import would delay every start.
_described_types: list[object] = []

# More items are converted on a thread: each may have a thousand others in it.
_MAX_ITEMS_ON_LOOP = 10

T = TypeVar("T")

_encoder = msgspec.json.Encoder()


class JsonResponse(Response):
    """``has_fixed_fields``: the body is an object whose fields are declared, not a map from ids to values."""

    media_type = "application/json"
    has_fixed_fields = False

    def extend_field(self, name: str, values: Sequence[object]) -> None:
        """Add values to a list in the body, which must be an object. This decodes and encodes it: not for hot paths."""
        fields = msgspec.json.decode(self.body)
        self.body = _encoder.encode(fields | {name: [*fields.get(name, ()), *values]})
        self.headers["content-length"] = str(len(self.body))


def json_response(
    value: object, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    response = JsonResponse(
        _encoder.encode(value), status_code=status, headers=dict(headers) if headers else None
    )
    response.has_fixed_fields = isinstance(value, msgspec.Struct)
    return response


def empty_response() -> Response:
    return Response(status_code=204)


async def list_response(items: Sequence[T], convert: Callable[[T], object]) -> Response:
    """The items, converted. Of many items, on a thread, so that other requests are answered meanwhile."""

    def build() -> Response:
        return json_response([convert(item) for item in items])

    return build() if len(items) <= _MAX_ITEMS_ON_LOOP else await asyncio.to_thread(build)


def describe_empty(description: str = "Successful Response") -> dict[int | str, dict[str, Any]]:
    """The same for an answer without a body."""
    return {204: {"description": description}}


def describe_response(
    body: object, status: int = 200, description: str = "Successful Response"
) -> dict[int | str, dict[str, Any]]:
    """For ``responses=`` of a route: the type of the body. A tuple means one of these. Merge statuses with ``|``."""
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
    """Put the schema of each type of ``describe_response`` in its place in the OpenAPI document."""
    schemas, components = msgspec.json.schema_components(
        _described_types, ref_template=_REF_TEMPLATE
    )
    known = openapi.setdefault("components", {}).setdefault("schemas", {})
    for name, schema in components.items():
        # Only enumerations are shared by requests and answers.
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
