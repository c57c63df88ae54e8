"""Resolves a host name once, and keeps the addresses that may be connected to.

The caller must connect to a returned address and must not resolve the name again: a second answer could differ (DNS
rebinding).
"""

import asyncio
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from ipaddress import ip_address
from threading import Thread
from typing import TypeAlias

from holdfast.core.addresses import AllowedAddresses, IPAddress, is_allowed
from holdfast.errors import AddressForbidden, Undeliverable

# How many names may be resolved at once: more than there are requests in progress. A name server that hangs blocks a
# thread until the system's resolver gives up, long after the request has. So these are separate daemon threads: no
# other work needs them, and the server does not wait for them when it stops.
MAX_LOOKUPS = 64

Resolve = Callable[[str, int], Sequence[str]]
_Result: TypeAlias = Sequence[str] | OSError


def system_resolve(host: str, port: int) -> list[str]:
    """The addresses of a name, by the system's resolver."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class Lookup:
    def __init__(self, allowed: AllowedAddresses, resolve: Resolve = system_resolve) -> None:
        self._allowed = allowed
        self._resolve = resolve
        self._slots = asyncio.Semaphore(MAX_LOOKUPS)
        self._in_progress: dict[tuple[str, int], asyncio.Future[_Result]] = {}

    async def find_addresses(self, host: str, port: int) -> list[str]:
        """The addresses to connect to, in the resolver's order. Raises AddressForbidden if none of them is allowed,
        Undeliverable if the name is unknown."""
        found = await self.find_all_addresses(host, port)
        reachable = [str(item) for item in found if is_allowed(host, item, self._allowed)]
        if not reachable:
            raise AddressForbidden.private(host)
        return reachable

    async def find_all_addresses(self, host: str, port: int) -> list[IPAddress]:
        """Also those that may not be connected to. Undeliverable if the name is unknown."""
        try:
            return [ip_address(text) for text in await self._resolve_once(host, port)]
        except OSError as error:
            raise Undeliverable(f"The host {host} was not found.") from error

    async def _resolve_once(self, host: str, port: int) -> Sequence[str]:
        """Resolve the name in a thread; requests for the same name wait for the same thread."""
        name = host, port
        if name not in self._in_progress:
            await self._slots.acquire()
            if name in self._in_progress:
                self._slots.release()
            else:
                self._in_progress[name] = self._start_resolving(name)
        found = await asyncio.shield(self._in_progress[name])
        if isinstance(found, OSError):
            raise found
        return found

    def _start_resolving(self, name: tuple[str, int]) -> "asyncio.Future[_Result]":
        loop = asyncio.get_running_loop()
        result: asyncio.Future[_Result] = loop.create_future()

        def finish(found: _Result) -> None:
            del self._in_progress[name]
            self._slots.release()
            result.set_result(found)

        def work() -> None:
            try:
                found: _Result = self._resolve(*name)
            except OSError as error:
                found = error
            except UnicodeError as error:
                # Not a valid name: a part of it is too long, or empty.
                found = OSError(str(error))
            # The loop may have been closed meanwhile.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(finish, found)

        Thread(target=work, name="lookup", daemon=True).start()
        return result
