"""JSON bodies, decoded by msgspec. A body that is not JSON, or that cannot be stored, is a 422 and never a 500.

Every router whose routes take a body is an ``APIRouter(route_class=JsonRoute)``. A large body is decoded and checked on
a thread, so that other requests are answered meanwhile.
"""

import asyncio
import json
import re
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import msgspec
from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from holdfast.core.json_depth import MAX_DEPTH, TOO_DEEP, is_too_deep
from holdfast.http.body_warnings import add_warnings, find_misspellings
from holdfast.http.wire import Fault

# Names and values of a body together, at every level. The decoder stops all other work of the process, so what it makes
# must be few; the lengths of texts hardly matter to it.
MAX_VALUES = 100_000
# A larger body is decoded on a thread. A smaller one takes less time than the change of threads.
MAX_BYTES_ON_LOOP = 64 * 1024

_POSITION = re.compile(r"\(byte (\d+)\)$")
_NUL_ESCAPE = b"\\u0000"
# Each name and each value has one of these before it, the outermost value excepted.
_MARKS = (b",", b":", b"[", b"{")

_decoder = msgspec.json.Decoder()


class InvalidBody(HTTPException):
    """A body does not have the form that its route declares. An HTTPException, because FastAPI turns any other error
    that is raised while it reads a body into a 400."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__(422)
        self.faults = faults


class JsonRoute(APIRoute):
    """Decodes the body, and adds a warning to the answer for each field of it that looks misspelled."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            json_request = _JsonRequest(request.scope, request.receive)
            json_request.body_field = self.body_field
            response = await handler(json_request)
            if json_request.warnings and response.status_code < 400:
                add_warnings(response, json_request.warnings)
            return response

        return handle


class _JsonRequest(Request):
    # FastAPI's, which has no public type.
    body_field: Any = None
    warnings: Sequence[str] = ()

    async def json(self) -> Any:
        """The decoded body. FastAPI checks it; of a large body it gets the checked object, which it takes as it is."""
        raw = await self.body()
        if len(raw) <= MAX_BYTES_ON_LOOP:
            return self._decode(raw)
        return await asyncio.to_thread(lambda: self._check(self._decode(raw)))

    def _decode(self, raw: bytes) -> Any:
        value = decode(raw)
        self.warnings = find_misspellings(value, self.body_field.field_info.annotation)
        return value

    def _check(self, value: Any) -> Any:
        checked, faults = self.body_field.validate(value, {}, loc=("body",))
        if faults:
            raise InvalidBody(faults)
        return checked


def decode(raw: bytes) -> Any:
    """Decode the body. A JSONDecodeError, which FastAPI answers with a 422, says what is wrong and where."""
    if has_more_values(raw, MAX_VALUES):
        raise _decode_error(f"JSON has more than {MAX_VALUES} names and values", 0)
    try:
        value = _decoder.decode(raw)
    except msgspec.DecodeError as error:
        position = _POSITION.search(str(error))
        raise _decode_error(str(error), int(position[1]) if position else 0) from None
    except UnicodeDecodeError as error:
        raise _decode_error("JSON is malformed: a string is not UTF-8", error.start) from None
    except RecursionError:
        raise _decode_error(TOO_DEEP, 0) from None
    # Each level needs a bracket, and counting brackets is cheap: almost no body has to be searched.
    if raw.count(b"[") + raw.count(b"{") > MAX_DEPTH and is_too_deep(value):
        raise _decode_error(TOO_DEEP, 0)
    return without_nul(value) if _NUL_ESCAPE in raw else value


def has_more_values(raw: bytes, limit: int) -> bool:
    """Whether the JSON text has more names and values than this. Nothing is decoded for it."""
    if len(raw) <= limit or _count_marks(raw) <= limit:
        return False
    # Marks within strings do not count. Without escaped quotes, every second part between quotes is outside of strings.
    unescaped = raw.replace(b"\\\\", b"").replace(b'\\"', b"")
    if unescaped.count(b'"') > 2 * limit + 2:
        return True
    return _count_marks(b"".join(unescaped.split(b'"')[::2])) > limit


def _count_marks(raw: bytes) -> int:
    return sum(map(raw.count, _MARKS))


def _decode_error(message: str, position: int) -> json.JSONDecodeError:
    return json.JSONDecodeError(message, "", position)


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
