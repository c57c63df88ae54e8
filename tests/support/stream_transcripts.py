"""Streams as text that can be compared, and a client that reads a stream as it arrives and may disconnect."""

import asyncio
import json
import re
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from fastapi import FastAPI
from starlette.types import Message

from holdfast.core.ids import derived_otid

WAIT_SECONDS = 20
_DATE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00")
_ID = re.compile(r"(message|step|run)-[0-9a-f-]{36}")


def items(stream: str) -> list[dict[str, Any]]:
    """The JSON objects of a stream, without the end marker."""
    lines = [line.removeprefix("data: ") for line in stream.splitlines() if line[:6] == "data: "]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def transcript(stream: str) -> list[str]:
    """A line for each event. ``M1`` is the first row, ``M1.0`` the otid of its first piece, ``S1`` a step.

    Nulls, dates and what is said twice are left out; the dates and the repetition are checked here.
    """
    assert stream.endswith("\n\n")
    names: dict[str, str] = {}
    return [_line(event, names) for event in stream.removesuffix("\n\n").split("\n\n")]


def _line(event: str, names: dict[str, str]) -> str:
    head, data, text = event.rpartition("data: ")
    if not data or text == "[DONE]":
        return event
    item = {key: value for key, value in json.loads(text).items() if value is not None}
    kind = item.pop("message_type")
    place = [
        _name(item.pop(key), names) for key in ("id", "otid", "step_id", "run_id") if key in item
    ]
    if "date" in item:
        assert _DATE.fullmatch(item.pop("date"))
        assert place[1].partition(".")[0] == place[0]
        del place[0]
    _check_calls(item)
    for repeated in ("source", "tool_returns", "stdout", "stderr"):
        item.pop(repeated, None)
    said = json.dumps(item, sort_keys=True)
    return " ".join([*head.split("\n")[:-1], *place, kind, said])


def _check_calls(item: dict[str, Any]) -> None:
    """The first of the calls stands beside them; of a delta there is only one (wire-v1 §4.5)."""
    calls = item.get("tool_calls")
    if calls is not None:
        assert item.pop("tool_call") == (calls[0] if isinstance(calls, list) else calls)
        item["tool_calls"] = calls


def _name(ident: str, names: dict[str, str]) -> str:
    if ident in names:
        return names[ident]
    found = _ID.fullmatch(ident)
    assert found, ident
    letter = found[1][0].upper()
    number = 1 + sum(name[0] == letter and "." not in name for name in names.values())
    names[ident] = f"{letter}{number}"
    if letter == "M":
        names |= {derived_otid(ident, index): f"M{number}.{index}" for index in range(5)}
    return names[ident]


class StreamReader:
    """Reads a stream while it arrives, which httpx cannot do without a server."""

    def __init__(self, app: FastAPI, path: str, body: dict[str, Any]) -> None:
        self._app = app
        self._path = path
        self._body = json.dumps(body).encode()
        self._changed = asyncio.Event()
        self._left = asyncio.Event()
        self.status = 0
        self.text = ""
        self.is_over = False

    async def __aenter__(self) -> Self:
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "POST",
            "path": self._path,
            "raw_path": self._path.encode(),
            "root_path": "",
            "scheme": "http",
            "query_string": b"",
            "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")],
        }
        self._task = asyncio.create_task(self._app(scope, self._receive, self._send))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.leave()

    async def wait_for_start(self) -> None:
        await self._until(lambda: self.status == 200)

    async def wait_for(self, text: str) -> None:
        await self._until(lambda: text in self.text)

    async def read_all(self) -> str:
        await self._until(lambda: self.is_over)
        return self.text

    async def leave(self) -> None:
        self._left.set()
        await asyncio.wait_for(self._task, WAIT_SECONDS)

    async def _until(self, fact: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            while not fact():
                self._changed.clear()
                await self._changed.wait()

    async def _receive(self) -> Message:
        if self._body:
            body, self._body = self._body, b""
            return {"type": "http.request", "body": body, "more_body": False}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        else:
            self.text += message.get("body", b"").decode()
            self.is_over = not message.get("more_body", False)
        self._changed.set()
