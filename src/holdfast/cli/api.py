"""A running server, for commands that ask it something: the public API over HTTP, and each failure as one sentence.

The standard library is enough for a few requests, and a command that starts at once is worth more than a client.
"""

import json
from collections.abc import Mapping
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import OpenerDirector, ProxyHandler, Request, build_opener

from holdfast.core.addresses import is_loopback
from holdfast.errors import BackendError, CallerError, SettingInvalid

# A cancel waits some seconds for its run to end; nothing else takes long.
TIMEOUT_SECONDS = 30.0

_PASSWORD_VARIABLES = ("HOLDFAST_PASSWORD", "LETTA_API_KEY")


class Api:
    """SettingInvalid if the address cannot be one, BackendError if nobody answers there, CallerError with the
    server's own words if it refuses."""

    def __init__(self, url: str, environ: Mapping[str, str]) -> None:
        self._url = url.rstrip("/")
        self._headers = {"accept": "application/json"}
        self._opener = _build_opener(url)
        if password := next(filter(None, map(environ.get, _PASSWORD_VARIABLES)), None):
            # The server compares bytes; a header is written as Latin-1.
            sent = password.encode().decode("latin-1")
            self._headers["authorization"] = f"Bearer {sent}"

    def get(self, *path: str, **query: object) -> Any:
        given = {key: value for key, value in query.items() if value is not None}
        return self._send(Request(f"{self._url_for(*path)}?{urlencode(given, doseq=True)}"))  # noqa: S310 - see _opener

    def post(self, *path: str, body: Mapping[str, object]) -> Any:
        request = Request(self._url_for(*path), json.dumps(body).encode(), method="POST")  # noqa: S310 - see _opener
        request.add_header("content-type", "application/json")
        return self._send(request)

    def _url_for(self, *path: str) -> str:
        return "/".join((self._url, "v1", *(quote(part, safe="") for part in path)))

    def _send(self, request: Request) -> Any:
        for name, value in self._headers.items():
            request.add_header(name, value)
        try:
            with self._opener.open(request, timeout=TIMEOUT_SECONDS) as answer:
                return json.load(answer)
        except HTTPError as error:
            with error:
                raise _to_error(error) from error
        except URLError as error:
            raise BackendError(self._unreachable_message(error.reason)) from error
        except (OSError, HTTPException, ValueError) as error:
            raise BackendError(self._unreachable_message(error)) from error

    def _unreachable_message(self, reason: object) -> str:
        why = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
        return (
            f"No Holdfast answers at {self._url} ({why}). Start it with `holdfast server`, or name another "
            "address with --url or HOLDFAST_URL."
        )


def _build_opener(url: str) -> OpenerDirector:
    """Only for HTTP, and past any proxy to this machine: it would look for the server on its own."""
    try:
        parts = urlsplit(url)
        host, scheme = parts.hostname, parts.scheme
    except ValueError:
        host, scheme = None, ""
    if scheme not in ("http", "https") or not host:
        raise SettingInvalid(
            f"The server's address is {url!r}; it must begin with http:// or https://."
        )
    return build_opener(ProxyHandler({})) if is_loopback(host) else build_opener()


def _to_error(error: HTTPError) -> BackendError | CallerError:
    if error.code == 401:
        return CallerError(f"The server wants its password: set {_PASSWORD_VARIABLES[0]}.")
    words = _error_text(error)
    return BackendError(words) if error.code >= 500 else CallerError(words)


def _error_text(error: HTTPError) -> str:
    try:
        detail = json.load(error)["detail"]
    except (OSError, HTTPException, ValueError, TypeError, KeyError):
        return f"The server answered {error.code} {error.reason}."
    return detail if isinstance(detail, str) else json.dumps(detail)
