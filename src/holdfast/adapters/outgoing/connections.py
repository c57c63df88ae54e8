"""HTTP/1.1 client that connects only to addresses that ``lookup`` has checked."""

from collections.abc import Iterable

import httpcore2

from holdfast.adapters.outgoing.lookup import Lookup
from holdfast.core.addresses import Destination
from holdfast.errors import Undeliverable
from holdfast.ports.outgoing import OutgoingRequest, OutgoingResponse

_FAILURES = (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException)


class GuardedNetwork(httpcore2.AsyncNetworkBackend):
    """TCP connections for httpcore, which passes the host name here and uses it for the Host header and TLS."""

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup
        self._tcp = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore's own interface
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        failure: Exception | None = None
        for address in await self._lookup.find_addresses(host, port):
            try:
                return await self._tcp.connect_tcp(
                    address, port, timeout, local_address, socket_options
                )
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failure = error
        raise failure or httpcore2.ConnectError("There is no address to connect to.")


class Connections:
    """One connection per request: the same server is rarely called twice, so none is kept open."""

    def __init__(self, lookup: Lookup) -> None:
        self._network = GuardedNetwork(lookup)
        self._ssl_context = httpcore2.default_ssl_context()

    async def send(self, destination: Destination, request: OutgoingRequest) -> OutgoingResponse:
        url = httpcore2.URL(
            scheme=destination.scheme,
            host=destination.host,
            port=destination.port,
            target=destination.target,
        )
        headers: list[tuple[bytes | str, bytes | str]] = [("Host", _host_header(destination))]
        headers += request.headers.items()
        try:
            async with (
                httpcore2.AsyncConnectionPool(
                    ssl_context=self._ssl_context, network_backend=self._network
                ) as pool,
                pool.stream(request.method, url, headers=headers, content=request.body) as response,
            ):
                body = await _read_body(response, request.max_response_bytes)
        except _FAILURES as error:
            why = str(error) or "the connection was lost"
            raise Undeliverable(f"{destination.host} gave no answer: {why}.") from error
        return OutgoingResponse(
            response.status,
            {
                name.decode("latin-1").lower(): value.decode("latin-1")
                for name, value in response.headers
            },
            body,
        )


async def _read_body(response: httpcore2.Response, max_bytes: int) -> bytes:
    received = bytearray()
    async for piece in response.aiter_stream():
        received += piece
        if len(received) > max_bytes:
            raise Undeliverable(f"The answer is larger than {max_bytes} bytes.")
    return bytes(received)


def _host_header(destination: Destination) -> str:
    host = f"[{destination.host}]" if ":" in destination.host else destination.host
    usual = {"http": 80, "https": 443}[destination.scheme]
    return host if destination.port == usual else f"{host}:{destination.port}"
