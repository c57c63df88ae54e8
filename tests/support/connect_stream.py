"""The stream of a connection to an MCP server, read in a thread while the test does what the stream waits for."""

import json
import queue
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import httpx

WAIT_SECONDS: Final = 60.0


class ConnectStream:
    def __init__(
        self,
        threads: ThreadPoolExecutor,
        http: httpx.Client,
        path: str,
        *,
        headers: dict[str, str] | None = None,
        body: dict[str, Any] | None = None,
    ) -> None:
        self._http = http
        self._request = http.build_request(
            "GET" if body is None else "POST", path, headers=headers, json=body
        )
        self._events: queue.Queue[dict[str, Any] | None] = queue.Queue()
        # Everything that was sent.
        self.lines: list[str] = []
        self._reading = threads.submit(self._read)

    def next(self) -> dict[str, Any]:
        """The next event."""
        event = self._events.get(timeout=WAIT_SECONDS)
        if event is None:
            self._reading.result()
        assert event is not None, "the stream has ended"
        return event

    def wait_for(self, *names: str) -> dict[str, Any]:
        """The next events must have these names; return the last one."""
        event: dict[str, Any] = {}
        for name in names:
            event = self.next()
            assert event["event"] == name, event
        return event

    def finish(self) -> list[dict[str, Any]]:
        """All events to the end."""
        events = []
        while (event := self._events.get(timeout=WAIT_SECONDS)) is not None:
            events.append(event)
        self._reading.result()
        return events

    def _read(self) -> None:
        try:
            response = self._http.send(self._request, stream=True)
            try:
                assert response.status_code == 200, response.read()
                assert response.headers["content-type"].startswith("text/event-stream")
                for line in response.iter_lines():
                    self.lines.append(line)
                    if line.startswith("data: "):
                        self._events.put(json.loads(line.removeprefix("data: ")))
            finally:
                response.close()
        finally:
            self._events.put(None)
