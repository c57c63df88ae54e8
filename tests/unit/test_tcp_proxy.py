"""The TCP proxy of the tests: it forwards, hangs, cuts and works again."""

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest
from tests.support.tcp_proxy import TcpProxy
from tests.support.waiting import WAIT_SECONDS

# Long enough for bytes on loopback to arrive if nothing holds them back.
SHORT_SECONDS = 0.1


@pytest.fixture
def proxy() -> Iterator[TcpProxy]:
    """A proxy before a server that sends back what it receives."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=serve_echoes, args=[server], daemon=True).start()
        with TcpProxy(server.getsockname()) as running:
            yield running
        server.shutdown(socket.SHUT_RDWR)


def serve_echoes(server: socket.socket) -> None:
    with suppress(OSError):
        while True:
            threading.Thread(target=send_back, args=[server.accept()[0]], daemon=True).start()


def send_back(client: socket.socket) -> None:
    with client, suppress(OSError):
        while data := client.recv(1_000):
            client.sendall(data)


def connect(proxy: TcpProxy) -> socket.socket:
    return socket.create_connection((proxy.host, proxy.port), WAIT_SECONDS)


def ask(client: socket.socket, data: bytes) -> bytes:
    client.sendall(data)
    return client.recv(1_000)


def test_a_proxy_forwards_both_ways(proxy: TcpProxy) -> None:
    with connect(proxy) as client:
        assert ask(client, b"one") == b"one"
        client.shutdown(socket.SHUT_WR)
        assert client.recv(1_000) == b""


def test_a_proxy_that_hangs_answers_when_it_is_resumed(proxy: TcpProxy) -> None:
    with connect(proxy) as client:
        assert ask(client, b"one") == b"one"
        proxy.hang()
        with connect(proxy) as late:
            for silent in (client, late):
                silent.settimeout(SHORT_SECONDS)
                with pytest.raises(TimeoutError):
                    ask(silent, b"two")
                silent.settimeout(WAIT_SECONDS)
            proxy.resume()
            assert (client.recv(1_000), late.recv(1_000)) == (b"two", b"two")


def test_a_proxy_that_is_cut_closes_connections_and_refuses_new_ones_until_it_is_resumed(
    proxy: TcpProxy,
) -> None:
    with connect(proxy) as client:
        assert ask(client, b"one") == b"one"
        proxy.cut()
        with suppress(ConnectionError):
            assert client.recv(1_000) == b""
    with pytest.raises(ConnectionRefusedError):
        connect(proxy)

    proxy.resume()

    with connect(proxy) as client:
        assert ask(client, b"two") == b"two"


def test_a_proxy_that_hangs_can_be_cut(proxy: TcpProxy) -> None:
    with connect(proxy) as client:
        assert ask(client, b"one") == b"one"
        proxy.hang()
        proxy.cut()
        with suppress(ConnectionError):
            assert client.recv(1_000) == b""


def test_a_connection_that_the_proxy_has_forgotten_hangs_and_new_ones_work(proxy: TcpProxy) -> None:
    with connect(proxy) as client:
        assert ask(client, b"one") == b"one"
        proxy.forget()
        with connect(proxy) as fresh:
            assert ask(fresh, b"two") == b"two"
        client.settimeout(SHORT_SECONDS)
        with pytest.raises(TimeoutError):
            ask(client, b"three")
