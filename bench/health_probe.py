"""``python -m bench.health_probe ADDRESS``: asks for health again and again until its input ends; prints how long it took.

A process of its own: the one with thousands of readers would measure itself.
"""

import http.client
import selectors
import sys
import time
from urllib.parse import urlsplit

import msgspec

_PAUSE_SECONDS = 0.02
_TIMEOUT_SECONDS = 60.0


def main() -> None:
    server = urlsplit(sys.argv[1]).netloc
    ended = selectors.DefaultSelector()
    ended.register(sys.stdin, selectors.EVENT_READ)
    taken = [_ask(server)]
    while not ended.select(_PAUSE_SECONDS):
        taken.append(_ask(server))
    print(msgspec.json.encode(taken).decode())


def _ask(server: str) -> float:
    """Milliseconds, with a new connection each time, as a probe does it."""
    began_at = time.perf_counter()
    connection = http.client.HTTPConnection(server, timeout=_TIMEOUT_SECONDS)
    connection.request("GET", "/v1/health/")
    if connection.getresponse().status != 200:
        raise RuntimeError("The server is not healthy.")
    connection.close()
    return (time.perf_counter() - began_at) * 1000


if __name__ == "__main__":
    main()
