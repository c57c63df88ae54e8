"""HTTP client of a running server, for commands that ask it something. Each failure is one sentence.

It uses the standard library only: a few requests need no more, and importing an HTTP client would make commands slow.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import OpenerDirector, ProxyHandler, Request, build_opener

from holdfast.config import URL_VARIABLE
from holdfast.core.addresses import is_loopback
from holdfast.errors import BackendError, CallerError, SettingInvalid

# A cancel waits some seconds for its run to end; nothing else takes long.
TIMEOUT_SECONDS = 30.0

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = "8283"
_PORTS = range(1, 65536)
# A server that listens on all addresses of its machine is reached by the loopback address.
_WILDCARD_HOSTS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared, not bound

_PASSWORD_VARIABLES = ("HOLDFAST_PASSWORD", "LETTA_API_KEY")


def default_url(environ: Mapping[str, str]) -> str:
    """The address at which a server with this environment listens (``HOLDFAST_HOST``, ``HOLDFAST_PORT``)."""
    host = environ.get("HOLDFAST_HOST") or DEFAULT_HOST
    port = environ.get("HOLDFAST_PORT") or DEFAULT_PORT
    if not port.isdecimal() or int(port) not in _PORTS:
        raise SettingInvalid(
            f"HOLDFAST_PORT is {port!r}, which is no port to connect to: name the server's address with --url or "
            f"{URL_VARIABLE}."
        )
    host = _WILDCARD_HOSTS.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class Api:
    """Raises SettingInvalid if the URL is not one, BackendError if no server answers, and CallerError with the
    server's message if it refuses the request."""

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

    def patch(self, *path: str) -> Any:
        return self._send(Request(self._url_for(*path), method="PATCH"))  # noqa: S310 - see _opener

    def delete(self, *path: str) -> None:
        request = Request(self._url_for(*path), method="DELETE")  # noqa: S310 - see _opener
        with self._open(request):
            pass

    def stream(self, *path: str, headers: Mapping[str, str]) -> Iterator[Any]:
        """Yield the events of a stream as they come. The server sends something every few seconds."""
        request = Request(self._url_for(*path), headers=dict(headers))  # noqa: S310 - see _opener
        with self._open(request) as answer:
            for line in answer:
                if line.startswith(b"data: "):
                    yield json.loads(line.removeprefix(b"data: "))

    def _url_for(self, *path: str) -> str:
        return "/".join((self._url, "v1", *(quote(part, safe="") for part in path)))

    def _send(self, request: Request) -> Any:
        with self._open(request) as answer:
            return json.load(answer)

    @contextmanager
    def _open(self, request: Request) -> Iterator[Any]:
        """The answer. What fails while it is read is told as well."""
        for name, value in self._headers.items():
            request.add_header(name, value)
        try:
            with self._opener.open(request, timeout=TIMEOUT_SECONDS) as answer:
                yield answer
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
            f"address with --url or {URL_VARIABLE}."
        )


def _build_opener(url: str) -> OpenerDirector:
    """An opener for HTTP only. It uses no proxy for loopback: a proxy would look for the server on its own machine."""
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
    text = _error_text(error)
    return BackendError(text) if error.code >= 500 else CallerError(text)


def _error_text(error: HTTPError) -> str:
    try:
        detail = json.load(error)["detail"]
    except (OSError, HTTPException, ValueError, TypeError, KeyError):
        return f"The server answered {error.code} {error.reason}."
    if isinstance(detail, dict) and "message" in detail:
        return ": ".join(str(detail[key]) for key in ("message", "error") if detail.get(key))
    return detail if isinstance(detail, str) else json.dumps(detail)
