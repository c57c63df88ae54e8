"""Applications that are used again: the first request to a new one takes longer than most tests."""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from fastapi import FastAPI

from holdfast.http.app import HttpSettings, build_app
from holdfast.http.readiness import Readiness
from holdfast.ports.services import Services

_idle: Final[dict[HttpSettings, list[FastAPI]]] = defaultdict(list)


@contextmanager
def use_app(services: Services, settings: HttpSettings | None = None) -> Iterator[FastAPI]:
    """An application with these settings over these services. No two callers have the same at a time."""
    idle = _idle[settings or HttpSettings()]
    app = idle.pop() if idle else build_app(None, settings or HttpSettings())
    app.state.services = services
    app.state.readiness = Readiness()
    try:
        yield app
    finally:
        del app.state.services
        idle.append(app)
