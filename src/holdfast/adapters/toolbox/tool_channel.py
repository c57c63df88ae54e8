"""Answers the calls of tools that a program in the sandbox sends over its socket.

Whoever holds the other end of the socket is not trusted: what cannot be a request ends the channel, and calls are limited
in number and size. The protocol is in `adapters/sandbox/server_functions.py`.
"""

import asyncio
import contextlib
import json
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from holdfast.adapters.sandbox.server_functions import HEADER, MAX_REQUEST_BYTES
from holdfast.core.json_depth import load_json

MAX_CALLS: Final = 500
"""How many tools one program may call. Each costs the server time, whatever the tool is."""

MAX_CALLS_AT_ONCE: Final = 8
"""Threads of a program may call tools at the same time; further requests wait in the socket."""

TOO_MANY_CALLS: Final = f"A program may call tools {MAX_CALLS} times at most."

_CHUNK_BYTES: Final = 64 * 1024

# Returns ``value`` or ``error``.
CallTool = Callable[[str, dict[str, Any]], Awaitable[Mapping[str, Any]]]


async def answer_calls(near: socket.socket, call_tool: CallTool) -> None:
    """Answer until the other side closes the socket, sends what is no request, or has called too often. Then the socket is
    shut down: the other side sees that nothing will be answered any more. Cancelling cancels the calls in progress."""
    slots, sending = asyncio.Semaphore(MAX_CALLS_AT_ONCE), asyncio.Lock()

    async def answer(request: dict[str, Any]) -> None:
        try:
            given = await call_tool(request["tool"], request["arguments"])
            await _send(near, sending, {"id": request["id"], **given})
        finally:
            slots.release()

    async with asyncio.TaskGroup() as calls:
        for _ in range(MAX_CALLS):
            request = await _receive_request(near)
            if request is None:
                break
            await slots.acquire()
            calls.create_task(answer(request))
        else:
            request = await _receive_request(near)
            if request is not None:
                await _send(near, sending, {"id": request["id"], "error": TOO_MANY_CALLS})
    with contextlib.suppress(OSError):
        near.shutdown(socket.SHUT_RDWR)


async def _receive_request(near: socket.socket) -> dict[str, Any] | None:
    """None at the end, and for anything that is no request."""
    try:
        (size,) = HEADER.unpack(await _receive_exactly(near, HEADER.size))
        if size > MAX_REQUEST_BYTES:
            return None
        request = load_json(await _receive_exactly(near, size))
    except (OSError, EOFError, ValueError):
        return None
    return request if _is_request(request) else None


def _is_request(request: object) -> bool:
    if not isinstance(request, dict):
        return False
    types = {"id": int, "tool": str, "arguments": dict}
    return all(isinstance(request.get(key), kind) for key, kind in types.items())


async def _receive_exactly(near: socket.socket, size: int) -> bytes:
    loop = asyncio.get_running_loop()
    data = bytearray()
    while len(data) < size:
        # Not recvmsg: descriptors that the other side sends along are closed by the kernel.
        piece = await loop.sock_recv(near, min(size - len(data), _CHUNK_BYTES))
        if not piece:
            raise EOFError
        data += piece
    return bytes(data)


async def _send(near: socket.socket, sending: asyncio.Lock, answer: Mapping[str, Any]) -> None:
    # Lone surrogates cannot be encoded as UTF-8; escaped they can.
    body = json.dumps(answer).encode()
    # The program may have ended meanwhile.
    with contextlib.suppress(OSError):
        async with sending:
            await asyncio.get_running_loop().sock_sendall(near, HEADER.pack(len(body)) + body)
