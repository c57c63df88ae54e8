"""``holdfast mcp``: list MCP servers and their tools, and log in to one. Returns text for people, or with ``as_json`` JSON for
scripts. What a login does meanwhile is shown at once."""

import re
import webbrowser
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, urlsplit

from holdfast.cli.text import align_columns, to_json
from holdfast.errors import BackendError, CallerError

if TYPE_CHECKING:
    from holdfast.cli.api import Api

Server = Mapping[str, Any]
Show = Callable[[str], None]

_HEADINGS: Final = ("NAME", "TYPE", "TOOLS", "LOGIN", "ADDRESS", "ID")
_SECRET_VARIABLE: Final = "HOLDFAST_MCP_CLIENT_SECRET"  # noqa: S105 - the name of a variable
# A browser gets nothing else.
_WEB_PAGE: Final = re.compile(r"https?://[!-~]+")
_LOGINS: Final = {
    "none": "-",
    "pending": "pending",
    "authorized": "logged in",
    "error": "failed",
    "ended": "ended: log in again",
}


def render_list(api: "Api", *, as_json: bool) -> str:
    """List the servers, oldest first."""
    servers = [_describe_server(api, server) for server in api.get("mcp-servers", "")]
    if as_json:
        return to_json(servers)
    rows = [_list_row(server) for server in servers]
    return align_columns([_HEADINGS, *rows]) if rows else "There are no MCP servers."


def render_tools(api: "Api", name: str, *, as_json: bool) -> str:
    tools = api.get("mcp-servers", _find(api, name)["id"], "tools")
    if as_json:
        return to_json(tools)
    if not tools:
        return f"{name} has no tools here. Read them in with `holdfast mcp refresh {name}`."
    rows = [(tool["name"], _first_line(tool["description"])) for tool in tools]
    return align_columns([("TOOL", "DESCRIPTION"), *rows])


def refresh(api: "Api", name: str, *, as_json: bool) -> str:
    """Read the server's tools again."""
    changes = api.patch("mcp-servers", _find(api, name)["id"], "refresh")
    if as_json:
        return to_json(changes)
    lines = [
        f"{label}: {', '.join(changes[label])}"
        for label in ("added", "updated", "deleted")
        if changes[label]
    ]
    lines += [
        f"skipped: {skipped['name']} ({skipped['reason']})"
        for skipped in changes.get("skipped", ())
    ]
    return "\n".join(lines) or f"Nothing has changed at {name}."


def log_in(
    api: "Api",
    name: str,
    *,
    headers: Mapping[str, str],
    opens_browser: bool,
    show: Show,
    as_json: bool,
) -> str:
    """Connect to the server, and wait until the user has completed the login if it wants one."""
    server = _find(api, name)
    show(f"Connecting to {server['server_name']} …")
    was_asked = False
    for event in api.stream("mcp-servers", "connect", server["id"], headers=headers):
        match event["event"]:
            case "authorization_url":
                was_asked = True
                _show_page(event["url"], name, opens_browser=opens_browser, show=show)
            case "success":
                return _render_success(server, event["tools"], was_asked, as_json=as_json)
            case "error":
                raise CallerError(event["message"])
    raise BackendError(f"The server stopped. {describe_pending(name)}")


def complete_login(api: "Api", name: str, callback_url: str, *, as_json: bool) -> str:
    """Bring the server what the browser could not: the address of the page that did not load."""
    server = _find(api, name)
    query = dict(parse_qsl(urlsplit(callback_url).query))
    if "state" not in query:
        raise CallerError(
            "That is not the address of the last page of a login: it has no state. Copy all of it, in quotes."
        )
    answer = api.get("tools", "mcp", "oauth", "callback", **query)
    if answer["status"] != "success":
        raise CallerError(answer["message"])
    changes = api.patch("mcp-servers", server["id"], "refresh")
    if as_json:
        return to_json({**answer, **changes})
    return f"{server['server_name']} is logged in."


def log_out(api: "Api", name: str) -> str:
    server = _find(api, name)
    api.delete("mcp-servers", server["id"], "login")
    return f"The login at {server['server_name']} is forgotten."


def describe_pending(name: str) -> str:
    return (
        "If a page has opened, the login can still be completed there, within 15 minutes of its beginning. "
        f"Then read the tools in with `holdfast mcp refresh {name}`."
    )


def client_headers(client_id: str | None, environ: Mapping[str, str]) -> dict[str, str]:
    """What names a client that was registered by hand."""
    if client_id is None:
        return {}
    secret = environ.get(_SECRET_VARIABLE)
    return {"x-oauth-client-id": client_id} | ({"x-oauth-client-secret": secret} if secret else {})


def _find(api: "Api", name: str) -> Server:
    for server in api.get("mcp-servers", ""):
        if name in (server["server_name"], server["id"]):
            found: Server = server
            return found
    raise CallerError(
        f"There is no MCP server with the name {name}. `holdfast mcp list` shows those that there are."
    )


def _describe_server(api: "Api", server: Server) -> dict[str, Any]:
    tools = api.get("mcp-servers", server["id"], "tools")
    login = api.get("mcp-servers", server["id"], "login")
    return {**server, "tools": len(tools), "login": login}


def _list_row(server: Server) -> tuple[str, ...]:
    return (
        server["server_name"],
        server["mcp_server_type"],
        str(server["tools"]),
        _LOGINS[server["login"]["status"]],
        server.get("server_url") or server.get("command") or "-",
        server["id"],
    )


def _show_page(url: str, name: str, *, opens_browser: bool, show: Show) -> None:
    if not _WEB_PAGE.fullmatch(url):
        raise CallerError(f"The authorization server of {name} names no web page to log in at.")
    has_opened = opens_browser and webbrowser.open(url)
    show("A page opens in your browser:" if has_opened else "Open this page in a browser:")
    show(f"\n  {url}\n")
    show(
        "Allow the access there. This command waits for up to five minutes; Ctrl-C ends the waiting, not the login.\n"
        "If the last page does not load, because that browser cannot reach the server, copy its address and run\n"
        f"  holdfast mcp login {name} --callback 'ADDRESS'"
    )


def _render_success(
    server: Server, tools: list[Mapping[str, Any]], was_asked: bool, *, as_json: bool
) -> str:
    if as_json:
        return to_json({"id": server["id"], "server_name": server["server_name"], "tools": tools})
    name, count = server["server_name"], len(tools)
    done = "is logged in" if was_asked else "can be used, and asked for no new login"
    return f"{name} {done}. It has {count} {'tool' if count == 1 else 'tools'}."


def _first_line(text: str | None) -> str:
    return (text or "").strip().partition("\n")[0][:100] or "-"
