"""HTTP/1.1 whose every connection goes to an address that was judged (``lookup``)."""

from collections.abc import Iterable

import httpcore2

from holdfast.adapters.outgoing.lookup import Lookup
from holdfast.core.addresses import Destination
from holdfast.errors import Undeliverable
from holdfast.ports.outgoing import Letter, Reply

_FAILURES = (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException)


class JudgedNetwork(httpcore2.AsyncNetworkBackend):
    """TCP for httpcore, which asks for the name and keeps it for Host and TLS."""

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
        for address in await self._lookup.addresses(host, port):
            try:
                return await self._tcp.connect_tcp(
                    address, port, timeout, local_address, socket_options
                )
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failure = error
        raise failure or httpcore2.ConnectError("There is no address to connect to.")


class Connections:
    """A connection for each request: a caller's server is rarely asked twice, and nothing is kept open to it."""

    def __init__(self, lookup: Lookup) -> None:
        self._network = JudgedNetwork(lookup)
        self._ssl_context = httpcore2.default_ssl_context()

    async def exchange(self, to: Destination, letter: Letter) -> Reply:
        url = httpcore2.URL(scheme=to.scheme, host=to.host, port=to.port, target=to.target)
        headers: list[tuple[bytes | str, bytes | str]] = [("Host", _host_header(to))]
        headers += letter.headers.items()
        try:
            async with (
                httpcore2.AsyncConnectionPool(
                    ssl_context=self._ssl_context, network_backend=self._network
                ) as pool,
                pool.stream(letter.method, url, headers=headers, content=letter.body) as response,
            ):
                body = await _body(response, letter.max_reply_bytes)
        except _FAILURES as error:
            why = str(error) or "the connection was lost"
            raise Undeliverable(f"{to.host} gave no answer: {why}.") from error
        return Reply(
            response.status,
            {
                name.decode("latin-1").lower(): value.decode("latin-1")
                for name, value in response.headers
            },
            body,
        )


async def _body(response: httpcore2.Response, max_bytes: int) -> bytes:
    received = bytearray()
    async for piece in response.aiter_stream():
        received += piece
        if len(received) > max_bytes:
            raise Undeliverable(f"The answer is larger than {max_bytes} bytes.")
    return bytes(received)


def _host_header(to: Destination) -> str:
    host = f"[{to.host}]" if ":" in to.host else to.host
    usual = {"http": 80, "https": 443}[to.scheme]
    return host if to.port == usual else f"{host}:{to.port}"
