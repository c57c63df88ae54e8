"""JSON bodies, decoded by msgspec. A body that is not JSON, or that cannot be stored, is a 422 and never a 500.

Every router whose routes take a body is an ``APIRouter(route_class=JsonRoute)``.
"""

import json
import re
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import msgspec
from fastapi import Request, Response
from fastapi.routing import APIRoute

from holdfast.http.body_warnings import add_warnings, find_misspellings

# No client needs more, and Python's stack and the databases allow far more.
MAX_DEPTH = 100

_POSITION = re.compile(r"\(byte (\d+)\)$")
_NUL_ESCAPE = b"\\u0000"

_decoder = msgspec.json.Decoder()


class JsonRoute(APIRoute):
    """Decodes the body, and adds a warning to the answer for each field of it that looks misspelled."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()
        body_type = self.body_field.field_info.annotation if self.body_field else None

        async def handle(request: Request) -> Response:
            json_request = _JsonRequest(request.scope, request.receive)
            json_request.body_type = body_type
            response = await handler(json_request)
            if json_request.warnings and response.status_code < 400:
                add_warnings(response, json_request.warnings)
            return response

        return handle


class _JsonRequest(Request):
    body_type: object = None
    warnings: Sequence[str] = ()

    async def json(self) -> Any:
        value = decode(await self.body())
        self.warnings = find_misspellings(value, self.body_type)
        return value


def decode(raw: bytes) -> Any:
    """Decode the body. A JSONDecodeError, which FastAPI answers with a 422, says what is wrong and where."""
    try:
        value = _decoder.decode(raw)
    except msgspec.DecodeError as error:
        position = _POSITION.search(str(error))
        raise _decode_error(str(error), int(position[1]) if position else 0) from None
    except UnicodeDecodeError as error:
        raise _decode_error("JSON is malformed: a string is not UTF-8", error.start) from None
    except RecursionError:
        raise _decode_error(_TOO_DEEP, 0) from None
    # Each level needs a bracket, and counting brackets is cheap: almost no body has to be searched.
    if raw.count(b"[") + raw.count(b"{") > MAX_DEPTH and _is_too_deep(value):
        raise _decode_error(_TOO_DEEP, 0)
    return without_nul(value) if _NUL_ESCAPE in raw else value


_TOO_DEEP = f"JSON is nested deeper than {MAX_DEPTH} levels"


def _decode_error(message: str, position: int) -> json.JSONDecodeError:
    return json.JSONDecodeError(message, "", position)


def _is_too_deep(value: object) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [inner for outer in level for inner in _inner_containers(outer)]
        if not level:
            return False
    return True


def _inner_containers(value: object) -> list[object]:
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [inner for inner in inside if isinstance(inner, dict | list)]


def without_nul(value: Any) -> Any:
    """The value with no NUL in any text: PostgreSQL cannot store one (wire-v1 §1.7)."""
    match value:
        case str():
            return value.replace("\0", "")
        case list():
            return [without_nul(inner) for inner in value]
        case dict():
            return {without_nul(key): without_nul(inner) for key, inner in value.items()}
        case _:
            return value
