"""What a wire gives to the generic part of ``http``. A wire is one HTTP API, and one folder beside ``letta_v1``."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter

from holdfast.errors import HoldfastError

# One entry of FastAPI's ``RequestValidationError.errors()``.
Fault = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """The routes of an API, the paths that need special treatment, and the JSON bodies of its errors."""

    # Requests whose path matches belong to this wire, whether a route serves them or not.
    paths: re.Pattern[str]
    # Routes are tried in this order.
    routers: Sequence[APIRouter]

    # These need no password.
    open_paths: frozenset[str]
    # The headers that may carry the password, each with the text before it, in lower case.
    password_headers: Mapping[str, str]
    # These end with a slash, all others do not. Requests may use either form.
    collection_paths: re.Pattern[str]
    # A POST to one of these starts a run. While the server stops they are refused.
    send_paths: re.Pattern[str]
    # A POST to one of these uploads a file. Paths have no slash at their end here.
    upload_paths: re.Pattern[str]
    # These tell whether the server can work. While it stops, it cannot.
    ready_paths: frozenset[str]

    # The body of an answer to a ready path that says why the server is not ready.
    render_not_ready: Callable[[str], object]
    render_error: Callable[[HoldfastError], object]
    # The body for a request that does not have the form that its route declares.
    render_invalid_request: Callable[[Sequence[Fault]], object]
    # The body for whatever else is refused; the text says why.
    render_refusal: Callable[[str], object]
    # Every type that the functions above return, for OpenAPI.
    error_bodies: tuple[type, ...]


class Wires:
    """All wires of an application."""

    def __init__(self, wires: Sequence[Wire]) -> None:
        self.all = tuple(wires)
        self.open_paths = frozenset[str]().union(*(wire.open_paths for wire in wires))

    def find(self, path: str) -> Wire:
        """The wire that a request for this path belongs to; the first, if it belongs to none."""
        for wire in self.all:
            if wire.paths.match(path):
                return wire
        return self.all[0]
