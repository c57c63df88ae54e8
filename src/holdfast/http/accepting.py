"""Accepts the connections of a listener that several processes share, so that each process gets its part of a burst.

The process that the system wakes first could accept all that wait before another one has woken up, and connections stay
where they were accepted. So a process accepts one and lets the others have their turn. If there is no end to them, it
accepts more each time. It knows nothing of the other processes: if they are dead or busy, it accepts the rest itself.
"""

import asyncio
import logging
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Final

# Others that are idle wake up within this. To answer the request of a connection takes about as long.
_PAUSE_SECONDS: Final = 0.002
# After so many turns one more connection is accepted in each. The pauses of two processes that accept 64 connections add
# up to 32 ms, for 5,000 to 0.3 s.
_TURNS_PER_STEP: Final = 4
# In a turn: answers to others must not wait until thousands are accepted.
_MOST: Final = 32
# After an error that is not the client's: there are too many open files, say.
_ERROR_PAUSE_SECONDS: Final = 0.1

_log = logging.getLogger(__name__)


async def accept_in_turns(
    listener: socket.socket, make_protocol: Callable[[], asyncio.Protocol]
) -> None:
    """Accept connections until cancelled."""
    loop = asyncio.get_running_loop()
    listener.setblocking(False)
    turns = 0
    while True:
        most = min(1 + turns // _TURNS_PER_STEP, _MOST)
        try:
            first, _ = await loop.sock_accept(listener)
            accepted = [first, *_accept_waiting(listener, most - 1)]
        except ConnectionAbortedError:
            continue
        except OSError as error:
            _log.warning("connection.not_accepted", extra={"why": str(error)})
            await asyncio.sleep(_ERROR_PAUSE_SECONDS)
            continue
        connected = await asyncio.gather(
            *(loop.connect_accepted_socket(make_protocol, connection) for connection in accepted),
            return_exceptions=True,
        )
        for failure in connected:
            if isinstance(failure, BaseException):
                # What is wrong with one connection must not keep out all others.
                _log.error("connection.failed", exc_info=failure)
        turns = turns + 1 if len(accepted) == most else 0
        await asyncio.sleep(_PAUSE_SECONDS)


def _accept_waiting(listener: socket.socket, most: int) -> list[socket.socket]:
    """Those that wait now. An error is left to the next turn."""
    accepted: list[socket.socket] = []
    with suppress(OSError):
        while len(accepted) < most:
            accepted.append(listener.accept()[0])
    return accepted
