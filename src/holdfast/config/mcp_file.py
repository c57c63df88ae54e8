"""The operator's file of MCP servers: the ``mcpServers`` JSON that many programs have in common.

It is read once, at the start. ``${NAME}`` stands for a variable of the server's environment; placeholders such as
``{{ NAME }}`` stay, since they are filled in for each agent.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from msgspec import Struct

from holdfast.core.mcp_addresses import show_address
from holdfast.core.mcp_servers import MAX_NAME_CHARS, NAME_PATTERN
from holdfast.errors import SettingInvalid
from holdfast.ports.mcp import ConfiguredServer

VARIABLE: Final = "HOLDFAST_MCP_CONFIG"

_ROOT: Final = "mcpServers"
_URL_KEYS: Final = ("url", "serverUrl", "httpUrl")
_KNOWN_KEYS: Final = frozenset(
    ("command", "args", "env", *_URL_KEYS, "headers", "type", "transport", "disabled")
)
_STDIO: Final = "stdio"
_SSE: Final = "sse"
_HTTP: Final = ("http", "streamable-http", "streamable_http", "streamablehttp")
# ${NAME}, ${NAME:-default}, ${env:NAME}.
_REFERENCE: Final = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_OTHER_REFERENCE: Final = re.compile(r"\$\{(?:input|command|config):[^}]*\}")


class McpFile(Struct, frozen=True):
    """``ignored``: what was not understood, as sentences."""

    servers: Mapping[str, ConfiguredServer]
    ignored: tuple[str, ...] = ()

    @property
    def has_secrets(self) -> bool:
        """Whether it may contain some: values of the environment, headers, or an unusual address."""
        return any(
            server.env or server.headers or (server.url and _is_hidden(server.url))
            for server in self.servers.values()
        )


def read_mcp_file(path: Path, environ: Mapping[str, str]) -> McpFile:
    """Raises SettingInvalid, which names the file and what is wrong with it."""
    try:
        return _read(path.read_bytes(), environ)
    except OSError as error:
        raise _refuse(path, f"cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise _refuse(path, str(error)) from None


def _is_hidden(url: str) -> bool:
    return show_address(url, is_configured=True) != url


def _refuse(path: Path, why: str) -> SettingInvalid:
    return SettingInvalid(f"{VARIABLE}: {path} {why}.")


def _read(content: bytes, environ: Mapping[str, str]) -> McpFile:
    try:
        root = json.loads(content, object_pairs_hook=_refuse_duplicates)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"is no JSON: {error.msg} (line {error.lineno}, column {error.colno})"
        ) from None
    except UnicodeDecodeError:
        raise ValueError("is no JSON: it is not a text in UTF-8") from None
    entries = root.get(_ROOT) if isinstance(root, dict) else None
    if not isinstance(entries, dict):
        raise ValueError(f'must have the form {{"{_ROOT}": {{"<name>": {{…}}}}}}')  # noqa: TRY004 - it becomes a SettingInvalid
    servers: dict[str, ConfiguredServer] = {}
    ignored = [f"{key!r} is not used." for key in root if key != _ROOT]
    for name, entry in entries.items():
        reader = _EntryReader(name, entry, environ)
        if reader.is_disabled():
            continue
        servers[name] = reader.read()
        ignored += reader.list_ignored()
    return McpFile(servers, tuple(ignored))


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"has {twice!r} twice in the same object")
    return found


class _EntryReader:
    def __init__(self, name: str, entry: Any, environ: Mapping[str, str]) -> None:
        self._name = name
        self._environ = environ
        if not name.strip():
            raise ValueError("has a server without a name")
        # A lone half of a character is fine in JSON, and nowhere else.
        is_text = name == name.encode(errors="replace").decode()
        if len(name) > MAX_NAME_CHARS or not is_text or re.fullmatch(NAME_PATTERN, name) is None:
            raise ValueError(
                f"has a server whose name cannot be used: {name[:MAX_NAME_CHARS]!r}. It may have {MAX_NAME_CHARS} "
                "characters and no control characters"
            )
        if not isinstance(entry, dict):
            raise self._refuse("must be an object")
        self._entry = entry

    def is_disabled(self) -> bool:
        return self._entry.get("disabled") is True

    def list_ignored(self) -> list[str]:
        unknown = sorted(self._entry.keys() - _KNOWN_KEYS)
        return [f"{key!r} of the server {self._name!r} is not used." for key in unknown]

    def read(self) -> ConfiguredServer:
        command = self._find_text("command")
        url = next((text for key in _URL_KEYS if (text := self._find_text(key))), None)
        if (command is None) == (url is None):
            raise self._refuse("needs either a command or a url")
        kind = self._find_kind()
        if kind is not None and (kind == _STDIO) != (command is not None):
            needed = "a command" if kind == _STDIO else "a url"
            raise self._refuse(f"has the type {kind!r}, which needs {needed}")
        if url is not None:
            self._check_url(url)
        return ConfiguredServer(
            name=self._name,
            command=command,
            args=self._read_args(),
            env=self._read_texts("env"),
            url=url,
            headers=self._read_texts("headers"),
            is_sse=kind == _SSE,
        )

    def _find_kind(self) -> str | None:
        for key in ("type", "transport"):
            kind = self._entry.get(key)
            if kind is None:
                continue
            if not isinstance(kind, str) or kind.lower() not in (_STDIO, _SSE, *_HTTP):
                raise self._refuse(f"has the {key} {kind!r}; it may be stdio, http or sse")
            return kind.lower()
        return None

    def _check_url(self, url: str) -> None:
        try:
            parts = urlsplit(url)
            is_usable = parts.scheme in ("http", "https") and bool(parts.hostname)
        except ValueError:
            is_usable = False
        if not is_usable:
            raise self._refuse("has a url that is none: it must begin with http:// or https://")
        if "@" in parts.netloc:
            raise self._refuse("has a name or a password in its url; use headers instead")

    def _find_text(self, key: str) -> str | None:
        value = self._entry.get(key)
        if value is None:
            return None
        if not isinstance(value, str) or not value.strip() or "\0" in value:
            raise self._refuse(f"has a {key} that is not a text")
        return self._fill_in(value, key)

    def _read_args(self) -> tuple[str, ...]:
        values = self._entry.get("args") or []
        if not isinstance(values, list):
            raise self._refuse("has args that are not a list of texts")
        return tuple(self._read_value(value, "args") for value in values)

    def _read_texts(self, key: str) -> dict[str, str]:
        values = self._entry.get(key) or {}
        if not isinstance(values, dict):
            raise self._refuse(f"has {key} that are not an object of texts")
        if key == "env" and any(not name or "=" in name or "\0" in name for name in values):
            raise self._refuse("has a name in env that no variable can have")
        return {name: self._read_value(value, key) for name, value in values.items()}

    def _read_value(self, value: Any, key: str) -> str:
        """People write numbers and switches without quotes, too."""
        if isinstance(value, bool | int | float):
            return json.dumps(value)
        if not isinstance(value, str) or "\0" in value:
            raise self._refuse(f"has a value in {key} that is not a text")
        return self._fill_in(value, key)

    def _fill_in(self, text: str, key: str) -> str:
        if found := _OTHER_REFERENCE.search(text):
            raise self._refuse(f"has {found[0]} in {key}, which only an editor can fill in")

        def find_value(found: re.Match[str]) -> str:
            name, default = found.groups()
            value = self._environ.get(name) or default
            if value is None:
                raise self._refuse(f"needs the environment variable {name}, which is not set")
            return value

        return _REFERENCE.sub(find_value, text)

    def _refuse(self, why: str) -> ValueError:
        return ValueError(f"cannot be used: the server {self._name!r} {why}")
