"""Functions that a tool's source calls and the server executes: the side of the tool's own process.

The protocol: frames over a stream socket, each of four bytes with its length (network byte order) and a JSON object. A
request has ``id``, ``tool`` and ``arguments``; its answer has the same ``id`` and either ``value`` or ``error``, a
sentence. Answers come in any order. A server that takes no more requests closes the socket. Imports only the standard
library, and a module that does the same.
"""

import itertools
import json
import os
import socket
import struct
import threading
import typing

from holdfast.core.json_depth import TOO_DEEP, is_too_deep

HEADER: typing.Final = struct.Struct("!I")
MAX_REQUEST_BYTES: typing.Final = 1024 * 1024

# Where the process finds the socket: FIRST_DESCRIPTOR of `ports/sandbox.py`.
_SOCKET_FD: typing.Final = 4
_ENDED: typing.Final = "The server takes no more calls of tools from this program."

Json = typing.Any


class ToolFailed(Exception):
    """A tool that the program called has failed, or may not be called."""


def make_functions(given: list[dict[str, Json]]) -> dict[str, Json]:
    """The functions by name."""
    if not given:
        return {}
    channel = Channel(socket.socket(fileno=_SOCKET_FD))
    made: dict[str, Json] = {item["name"]: make_function(item, channel) for item in given}
    return {"ToolFailed": ToolFailed, **made}


def make_function(item: dict[str, Json], channel: "Channel") -> typing.Callable[..., Json]:
    name, parameters = item["name"], item["parameters"]

    def call_tool(*positional: Json, **named: Json) -> Json:
        if len(positional) > len(parameters):
            raise TypeError(
                f"{name}() takes {len(parameters)} arguments, but {len(positional)} were given"
            )
        arguments = dict(zip(parameters, positional, strict=False))
        if repeated := sorted(arguments.keys() & named.keys()):
            raise TypeError(f"{name}() got several values for the argument {repeated[0]!r}")
        return channel.call(item["tool"], {**arguments, **named})

    call_tool.__name__ = call_tool.__qualname__ = name
    call_tool.__doc__ = f"{name}({', '.join(parameters)})\n\n{item['description']}"
    return call_tool


class Channel:
    """The calls of all threads share one socket: one of the threads that wait reads for all of them."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._pid = os.getpid()
        self._numbers = itertools.count()
        self._sending = threading.Lock()
        self._arrival = threading.Condition()
        self._answers: dict[int, dict[str, Json]] = {}
        self._is_reading = False

    def call(self, tool: str, arguments: dict[str, Json]) -> Json:
        # A forked process would get the answers of others.
        if os.getpid() != self._pid:
            raise ToolFailed("Tools can be called only by the process in which the program began.")
        number = next(self._numbers)
        request = {"id": number, "tool": tool, "arguments": arguments}
        if is_too_deep(request):
            raise ToolFailed(f"The arguments of {tool} cannot be sent: {TOO_DEEP}.")
        body = json.dumps(request, allow_nan=False).encode()
        if len(body) > MAX_REQUEST_BYTES:
            raise ToolFailed(f"The arguments of {tool} are larger than {MAX_REQUEST_BYTES} bytes.")
        try:
            with self._sending:
                self._socket.sendall(HEADER.pack(len(body)) + body)
            answer = self._wait(number)
        except (OSError, EOFError):
            raise ToolFailed(_ENDED) from None
        if "error" in answer:
            raise ToolFailed(answer["error"])
        return answer["value"]

    def _wait(self, number: int) -> dict[str, Json]:
        with self._arrival:
            while number not in self._answers:
                if self._is_reading:
                    self._arrival.wait()
                else:
                    self._read_for_all()
            return self._answers.pop(number)

    def _read_for_all(self) -> None:
        """Read one answer. The lock is free meanwhile, so that others can begin to wait."""
        self._is_reading = True
        self._arrival.release()
        answer = None
        try:
            (size,) = HEADER.unpack(self._read_exactly(HEADER.size))
            answer = json.loads(self._read_exactly(size))
        finally:
            self._arrival.acquire()
            self._is_reading = False
            if answer is not None:
                self._answers[answer["id"]] = answer
            self._arrival.notify_all()

    def _read_exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            piece = self._socket.recv(min(size - len(data), 1 << 16))
            if not piece:
                raise EOFError
            data += piece
        return bytes(data)
