"""``holdfast mcp`` against a running server: people log in to MCP servers from a terminal."""

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from tests.support.authorization_server import AuthorizationServer
from tests.support.mcp_server import McpTestServer
from tests.support.server_process import (
    HOLDFAST,
    START_SECONDS,
    Command,
    ServerProcess,
    StartServer,
    clean_environment,
)
from tests.support.wire_server import connect_plainly, variables

from holdfast.testing import ScriptedProvider

pytestmark = pytest.mark.slow

PASSWORD = "open-sesame"


@pytest.fixture
def server_with_tools() -> Iterator[McpTestServer]:
    with McpTestServer() as server:
        yield server


@pytest.fixture
def site(server_with_tools: McpTestServer) -> AuthorizationServer:
    return AuthorizationServer(server_with_tools)


@pytest.fixture
def server(start_server: StartServer, provider: ScriptedProvider) -> ServerProcess:
    return start_server(HOLDFAST_PASSWORD=PASSWORD, **variables(provider))


@pytest.fixture
def server_id(server: ServerProcess, site: AuthorizationServer) -> str:
    config = {"mcp_server_type": "streamable_http", "server_url": site.server.url}
    with connect_plainly(server.address, headers={"authorization": f"Bearer {PASSWORD}"}) as http:
        created = http.post("/v1/mcp-servers/", json={"server_name": "notes", "config": config})
    return str(created.json()["id"])


class Login:
    """The command in a terminal, while the user is in the browser."""

    def __init__(self, home: Path, *arguments: str, **given: str) -> None:
        environment = clean_environment(home, HOLDFAST_PASSWORD=PASSWORD, **given)
        self.process = subprocess.Popen(
            [HOLDFAST, "mcp", "login", *arguments],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def read_page(self) -> str:
        """The address that it tells the user to open, once all of its advice is there."""
        assert self.process.stderr is not None
        page = ""
        for line in self.process.stderr:
            page = line.strip() if line.startswith("  http") else page
            if "--callback" in line:
                return page
        raise AssertionError("The command ended.")

    def finish(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=START_SECONDS)
        return self.process.returncode, out, err


@pytest.fixture
def browser(tmp_path: Path) -> tuple[Path, Path]:
    """A browser that writes down what it was told to open: the program, and the file."""
    opened = tmp_path / "opened"
    program = tmp_path / "browser"
    program.write_text(f"#!/bin/sh\nprintf %s \"$1\" > '{opened}'\n")
    program.chmod(0o755)
    return program, opened


def test_a_user_logs_in_in_the_browser_that_opens(
    holdfast: Command,
    server: ServerProcess,
    server_id: str,
    site: AuthorizationServer,
    browser: tuple[Path, Path],
    tmp_path: Path,
) -> None:
    program, opened = browser
    before = holdfast("mcp", "list", HOLDFAST_URL=server.address, HOLDFAST_PASSWORD=PASSWORD)
    assert before.stdout.splitlines()[1].split()[:4] == ["notes", "streamable_http", "0", "-"]

    login = Login(tmp_path, "notes", BROWSER=str(program), HOLDFAST_URL=server.address)
    page = login.read_page()
    assert httpx.get(site.approve(page)).json()["status"] == "success"

    code, out, _ = login.finish()
    assert (code, out[:19]) == (0, "notes is logged in.")
    assert opened.read_text() == page
    listed = holdfast(
        "mcp", "list", "--json", HOLDFAST_URL=server.address, HOLDFAST_PASSWORD=PASSWORD
    )
    (row,) = json.loads(listed.stdout)
    assert row["login"]["status"] == "authorized"
    tools = holdfast(
        "mcp", "tools", "notes", HOLDFAST_URL=server.address, HOLDFAST_PASSWORD=PASSWORD
    )
    assert tools.stdout.startswith("TOOL")
    assert len(tools.stdout.splitlines()) == row["tools"] + 1
    again = Login(tmp_path, server_id, "--json", "--no-browser", HOLDFAST_URL=server.address)
    code, out, _ = again.finish()
    assert code == 0
    assert {"name", "inputSchema"} <= json.loads(out)["tools"][0].keys()
    assert [secret for secret in site.secrets if secret in out + server.log] == []


def test_a_login_that_is_stopped_stays_pending_and_is_completed_by_its_last_address(
    holdfast: Command,
    server: ServerProcess,
    server_id: str,
    site: AuthorizationServer,
    tmp_path: Path,
) -> None:
    where = {"HOLDFAST_URL": server.address, "HOLDFAST_PASSWORD": PASSWORD}
    login = Login(tmp_path, "notes", "--no-browser", HOLDFAST_URL=server.address)
    page = login.read_page()

    login.process.send_signal(signal.SIGINT)

    code, out, err = login.finish()
    assert (code, out) == (130, "")
    assert "the login can still be completed" in err
    assert "Traceback" not in err
    assert holdfast("mcp", "list", **where).stdout.splitlines()[1].split()[3] == "pending"
    # The browser is on another machine, where nobody listens.
    callback = urlsplit(site.approve(page))._replace(netloc="localhost:1").geturl()
    done = holdfast("mcp", "login", "notes", "--callback", callback, **where)
    assert (done.returncode, done.stdout) == (0, "notes is logged in.\n"), done.stderr
    twice = holdfast("mcp", "login", "notes", "--callback", callback, **where)
    assert (twice.returncode, twice.stderr) == (
        1,
        "holdfast: Invalid or expired state parameter\n",
    )
    assert int(holdfast("mcp", "list", **where).stdout.splitlines()[1].split()[2]) > 0
    assert holdfast("mcp", "refresh", "notes", **where).stdout == "Nothing has changed at notes.\n"
    gone = holdfast("mcp", "logout", "notes", **where)
    assert gone.stdout == "The login at notes is forgotten.\n"
    assert holdfast("mcp", "list", **where).stdout.splitlines()[1].split()[3] == "-"


def test_a_user_who_says_no_is_told_so_in_the_terminal(
    server: ServerProcess, server_id: str, site: AuthorizationServer, tmp_path: Path
) -> None:
    login = Login(tmp_path, "notes", "--no-browser", "--url", server.address)
    httpx.get(site.deny(login.read_page()))

    code, out, err = login.finish()

    assert (code, out) == (1, "")
    assert err.endswith("holdfast: OAuth error: access_denied - The user said <no>.\n")


def test_what_cannot_be_done_is_one_sentence(
    holdfast: Command,
    server: ServerProcess,
    server_id: str,
    site: AuthorizationServer,
) -> None:
    where = {"HOLDFAST_URL": server.address, "HOLDFAST_PASSWORD": PASSWORD}
    unknown = "There is no MCP server with the name nowhere"
    for command in ("tools", "refresh", "login", "logout"):
        failed = holdfast("mcp", command, "nowhere", **where)
        assert (failed.returncode, failed.stdout) == (1, "")
        assert unknown in failed.stderr
    odd = holdfast("mcp", "login", "notes", "--callback", "http://localhost/?code=x", **where)
    assert odd.returncode == 1
    assert "it has no state" in odd.stderr
    refused = holdfast("mcp", "refresh", "notes", **where)
    assert refused.returncode == 1
    assert "Could not connect to MCP server notes" in refused.stderr
    assert "{" not in refused.stderr
    site.metadata = {"authorization_endpoint": "file:///etc/passwd"}
    hostile = holdfast("mcp", "login", "notes", **where)
    assert hostile.returncode == 1
    assert "Failed to trigger OAuth" in hostile.stderr


def test_the_help_says_what_to_do(run_command: Command) -> None:
    for command in ("list", "tools", "refresh", "login", "logout"):
        shown = run_command("mcp", command, "--help")
        assert shown.returncode == 0
        assert "--url" in shown.stdout
    assert "HOLDFAST_MCP_CLIENT_SECRET" in run_command("mcp", "login", "--help").stdout
