"""MCP servers as callers describe them: what a description may say, and what a change leaves as it is (tools-v1 §1.3).

A secret is shown with ``MASK`` in its place. A client that sends back what it was shown changes nothing.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import UNSET, Struct, UnsetType, structs

from holdfast.core import mcp_headers
from holdfast.core.mcp_servers import (
    AUTHORIZATION,
    MASK,
    McpSecrets,
    McpServer,
    Transport,
    mask_secret,
    mask_values,
)
from holdfast.errors import InvalidArgument
from holdfast.ports.services import Services
from holdfast.usecases.mcp_endpoints import STDIO_DISABLED

# An error message quotes at most this much of a refused name.
_MAX_QUOTED_CHARS: Final = 100


class McpServerForm(Struct, frozen=True, kw_only=True):
    """The input for creating or updating a server. UNSET leaves a stored value unchanged; None clears it where it may be
    absent, and leaves it unchanged where it may not."""

    name: str | None = None
    # None: as it is stored.
    transport: Transport | None = None
    server_url: str | None = None
    auth_header: str | UnsetType | None = UNSET
    auth_token: str | UnsetType | None = UNSET
    custom_headers: Mapping[str, str] | UnsetType | None = UNSET
    command: str | None = None
    args: tuple[str, ...] | None = None
    env: Mapping[str, str] | UnsetType | None = UNSET

    def __repr__(self) -> str:
        return f"McpServerForm({self.name!r}, …)"


class ShownSecrets(Struct, frozen=True, kw_only=True):
    """What answers show of the headers and the environment of a server."""

    auth_header: str | None
    auth_token: str | None
    custom_headers: dict[str, str] | None
    env: dict[str, str] | None


def show_secrets(server: McpServer) -> ShownSecrets:
    token = server.secrets.auth_token
    if token is None:
        header, shown = server.auth_header, None
    else:
        header = server.auth_header or AUTHORIZATION
        shown = mask_secret(mcp_headers.add_scheme(header, token))
    return ShownSecrets(
        auth_header=header,
        auth_token=shown,
        custom_headers=mask_values(server.secrets.custom_headers),
        env=mask_values(server.secrets.env),
    )


def apply_form(services: Services, server: McpServer, form: McpServerForm) -> McpServer:
    """The server with the changes of the form, which may be refused."""
    _check_transport(server, form)
    shown = show_secrets(server)
    secrets = McpSecrets(
        auth_token=_read_token(form, shown, server.secrets.auth_token),
        custom_headers=_read_values(
            "custom_headers",
            form.custom_headers,
            shown.custom_headers,
            server.secrets.custom_headers,
        ),
        env=_read_values("env", form.env, shown.env, server.secrets.env),
    )
    changed = structs.replace(
        server,
        name=form.name or server.name,
        server_url=form.server_url or server.server_url,
        auth_header=server.auth_header if form.auth_header is UNSET else form.auth_header or None,
        command=form.command or server.command,
        args=server.args if form.args is None else form.args,
        secrets=secrets,
    )
    if changed.server_url != server.server_url:
        _refuse_to_send_elsewhere(_list_kept_secrets(form, shown))
    check_server(services, changed)
    return changed


def check_server(services: Services, server: McpServer) -> None:
    """Refuse what could never be reached, or must not be."""
    if server.transport is Transport.STDIO:
        if not services.mcp_options.stdio_over_api:
            raise InvalidArgument(STDIO_DISABLED)
        _check_program(server)
        return
    services.outgoing.check(server.server_url or "")
    _check_header(server.auth_header or AUTHORIZATION, server.secrets.auth_token or "")
    for name, value in (server.secrets.custom_headers or {}).items():
        _check_header(name, value)


def _check_transport(server: McpServer, form: McpServerForm) -> None:
    is_program = server.transport is Transport.STDIO
    given = form.transport
    if given is None and is_program and form.server_url:
        given = Transport.STREAMABLE_HTTP
    if given is None and not is_program and form.command:
        given = Transport.STDIO
    if given is not None and given is not server.transport:
        raise InvalidArgument(
            f"Cannot change the type of MCP server {server.name} from {server.transport} to {given}"
        )


def _read_token(form: McpServerForm, shown: ShownSecrets, stored: str | None) -> str | None:
    if form.auth_token is UNSET:
        return stored
    if form.auth_token is not None and form.auth_token == shown.auth_token:
        return stored
    if form.auth_token is not None and MASK in form.auth_token:
        raise _refuse_mask("auth_token")
    return form.auth_token or None


def _read_values(
    field: str,
    given: Mapping[str, str] | UnsetType | None,
    shown: Mapping[str, str] | None,
    stored: Mapping[str, str] | None,
) -> dict[str, str] | None:
    if given is UNSET:
        return None if stored is None else dict(stored)
    if given is None:
        return None
    values: dict[str, str] = {}
    for name, value in given.items():
        if shown is not None and stored is not None and shown.get(name) == value:
            values[name] = stored[name]
        elif MASK in value:
            raise _refuse_mask(f"{field}[{name[:_MAX_QUOTED_CHARS]!r}]")
        else:
            values[name] = value
    return values


def _refuse_mask(field: str) -> InvalidArgument:
    return InvalidArgument(
        f"{field}: {MASK} stands for a secret in answers. Send the secret itself, or leave the field out to keep it."
    )


def _list_kept_secrets(form: McpServerForm, shown: ShownSecrets) -> list[str]:
    """The fields with stored secrets that the form keeps. A placeholder is no secret, unless its default may be one."""
    kept = []
    if MASK in (shown.auth_token or "") and form.auth_token in (UNSET, shown.auth_token):
        kept.append("auth_token")
    given = form.custom_headers
    for name, value in (shown.custom_headers or {}).items():
        is_kept = given is UNSET or (given is not None and given.get(name) == value)
        if MASK in value and is_kept:
            kept.append("custom_headers")
            break
    return kept


def _refuse_to_send_elsewhere(fields: Sequence[str]) -> None:
    """Whoever may change a server need not know its secrets, and must not get them sent to an address of their own. (Who may
    name a program may run any on this machine, so there is nothing like this for programs.)"""
    if fields:
        raise InvalidArgument(
            "The stored secrets are not sent to another address. To change server_url, "
            f"send {' and '.join(fields)} again too, or null."
        )


def _check_program(server: McpServer) -> None:
    if not (server.command or "").strip():
        raise InvalidArgument("command cannot be empty")
    env = server.secrets.env or {}
    if any("\0" in text for text in (server.command or "", *server.args, *env.values())):
        raise InvalidArgument(
            "A command, its arguments and its environment have no NUL characters."
        )
    for name in env:
        if not name or "=" in name or "\0" in name:
            # Not quoted: people paste whole assignments there.
            raise InvalidArgument("env has a name that no variable can have.")


def _check_header(name: str, value: str) -> None:
    fault = mcp_headers.find_fault(name, value)
    if fault is not None:
        raise InvalidArgument(f"The MCP server cannot be used: {fault}.")
