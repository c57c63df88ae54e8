"""Looking a name up, once, and keeping of its addresses those that may be reached.

Whoever connects must connect to what is returned here and to nothing else: a second look-up could have another
answer (DNS rebinding).
"""

import asyncio
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from ipaddress import ip_address
from threading import BoundedSemaphore, Thread

from holdfast.core.addresses import Reach, may_reach
from holdfast.errors import AddressForbidden, Undeliverable

# Look-ups that may be under way at once. A name server that hangs keeps its threads for as long as the
# machine's resolver waits: so they are none that anybody else needs, and none that the end waits for.
MAX_LOOKUPS = 16

Resolve = Callable[[str, int], Sequence[str]]


def system_resolve(host: str, port: int) -> list[str]:
    """The addresses of a name, as this machine finds them."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class Lookup:
    def __init__(self, allowed: Reach, resolve: Resolve = system_resolve) -> None:
        self._allowed = allowed
        self._resolve = resolve
        self._slots = BoundedSemaphore(MAX_LOOKUPS)

    async def addresses(self, host: str, port: int) -> list[str]:
        """Where to connect, in the resolver's order. AddressForbidden if nothing of it may be reached,
        Undeliverable if the name is unknown."""
        try:
            found = [ip_address(text) for text in await self._resolved(host, port)]
        except OSError as error:
            raise Undeliverable(f"The host {host} was not found.") from error
        reachable = [str(item) for item in found if may_reach(host, item, self._allowed)]
        if not reachable:
            raise AddressForbidden.private(host)
        return reachable

    async def _resolved(self, host: str, port: int) -> Sequence[str]:
        if not self._slots.acquire(blocking=False):
            raise Undeliverable("Too many names are being looked up.")
        loop = asyncio.get_running_loop()
        result: asyncio.Future[Sequence[str]] = loop.create_future()

        def work() -> None:
            try:
                found: Sequence[str] | OSError = self._resolve(host, port)
            except OSError as error:
                found = error
            finally:
                self._slots.release()
            # Whoever asked may be gone, and the loop with them.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(_settle, result, found)

        Thread(target=work, name="lookup", daemon=True).start()
        return await result


def _settle(result: asyncio.Future[Sequence[str]], found: Sequence[str] | OSError) -> None:
    if result.done():
        return
    if isinstance(found, OSError):
        result.set_exception(found)
    else:
        result.set_result(found)
