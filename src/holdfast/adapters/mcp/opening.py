"""What the client needs of the SDK, behind one import."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from holdfast.adapters.mcp.client import ClientOptions
from holdfast.adapters.mcp.connection import Connection, Timing
from holdfast.adapters.mcp.jobs import Job
from holdfast.adapters.mcp.session import OpenStdio, Session, Transports
from holdfast.adapters.outgoing.lookup import Lookup
from holdfast.core.addresses import AllowedAddresses
from holdfast.core.mcp_servers import Endpoint

T = TypeVar("T")


class Opening:
    """Builds it in a thread: no loop is needed for that."""

    def __init__(
        self,
        options: ClientOptions,
        allowed: AllowedAddresses,
        lookup: Lookup,
        *,
        open_stdio: OpenStdio,
        read_suspended_seconds: Callable[[], float],
    ) -> None:
        self._connect_seconds = options.connect_seconds
        self._timing = Timing(options.connect_seconds, options.idle_seconds, read_suspended_seconds)
        self._transports = Transports(
            allowed,
            lookup,
            open_stdio=open_stdio,
            max_result_bytes=options.max_result_bytes,
            connect_seconds=options.connect_seconds,
        )

    def open(self, endpoint: Endpoint, on_free: Callable[[Connection], None]) -> Connection:
        return Connection(endpoint, self._transports, self._timing, on_free)

    def build_job(
        self,
        endpoint: Endpoint,
        doing: str,
        run: Callable[[Session], Awaitable[T]],
        seconds: float,
        *,
        is_repeatable: bool,
    ) -> Job[T]:
        return Job(
            endpoint.server_name,
            doing,
            run,
            seconds=seconds,
            connect_seconds=self._connect_seconds,
            is_repeatable=is_repeatable,
        )
