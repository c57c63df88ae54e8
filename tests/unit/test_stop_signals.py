"""Which signals stop a server, and which make it hurry."""

import signal
import time
from typing import Any

import pytest
from starlette.responses import Response

from holdfast.http.pending_requests import ConnectionLimits, PendingRequests
from holdfast.http.request_pace import RequestPace
from holdfast.http.server import HttpServer

TERM, INT = signal.SIGTERM, signal.SIGINT


async def stop_nothing() -> None: ...


@pytest.mark.parametrize(
    ("supervised", "signals", "hurries"),
    [
        (False, [TERM], False),
        (False, [TERM, TERM], True),
        (False, [INT, INT], True),
        (True, [TERM], False),
        (True, [TERM, TERM, TERM], False),
        (True, [TERM, INT], True),
        (True, [TERM, TERM, INT], True),
    ],
)
def test_a_server_with_a_supervisor_may_get_sigterm_more_than_once(
    supervised: bool, signals: list[signal.Signals], hurries: bool
) -> None:
    hurried: list[Any] = []
    server = HttpServer(
        Response(),
        pending=PendingRequests(ConnectionLimits(), time.monotonic, ()),
        pace=RequestPace(frozenset()),
        backlog=1,
        on_ready=lambda _: None,
        on_stop=stop_nothing,
        on_second_signal=lambda: hurried.append(True),
        supervised=supervised,
    )

    for number in signals:
        server.handle_exit(number, None)

    assert server.should_exit
    assert (bool(hurried), server.force_exit) == (hurries, hurries)
