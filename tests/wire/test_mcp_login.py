"""Logging in to MCP servers that want it: over the stream of a connection, with a browser's callback to any server."""

import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from letta_client import APIStatusError, Letta
from tests.support.authorization_server import AuthorizationServer
from tests.support.connect_stream import ConnectStream
from tests.support.mcp_server import McpTestServer
from tests.support.server_process import ServerProcess
from tests.support.wire_server import connect_plainly, variables

from holdfast.testing import ScriptedProvider

CALLBACK_PATH = "/v1/tools/mcp/oauth/callback"

AddServer = Callable[..., str]


@pytest.fixture
def server_with_tools() -> Iterator[McpTestServer]:
    with McpTestServer() as server:
        yield server


@pytest.fixture
def site(server_with_tools: McpTestServer) -> AuthorizationServer:
    """An MCP server that wants logins."""
    return AuthorizationServer(server_with_tools)


@pytest.fixture
def add_server(client: Letta, site: AuthorizationServer) -> Iterator[AddServer]:
    made: list[str] = []

    def add(**fields: Any) -> str:
        config = {"mcp_server_type": "streamable_http", "server_url": site.server.url} | fields
        name = f"notes-{uuid.uuid4().hex[:8]}"
        created = client.mcp_servers.create(server_name=name, config=config)  # type: ignore[arg-type] # one of a union
        assert created.id is not None
        made.append(created.id)
        return created.id

    yield add
    for server_id in made:
        client.mcp_servers.delete(server_id)


def open_page(http: httpx.Client, callback_url: str, **headers: str) -> httpx.Response:
    """What the browser of the user does: it may reach any of the servers."""
    parts = urlsplit(callback_url)
    assert parts.path == CALLBACK_PATH
    return http.get(f"{parts.path}?{parts.query}", headers=headers)


def log_in(
    pool: ThreadPoolExecutor, http: httpx.Client, site: AuthorizationServer, server_id: str
) -> dict[str, Any]:
    """Log in, and return the last event."""
    stream = ConnectStream(pool, http, f"/v1/mcp-servers/connect/{server_id}")
    stream.wait_for("connection_attempt", "oauth_required")
    page = stream.wait_for("authorization_url")
    assert open_page(http, site.approve(page["url"])).json()["status"] == "success"
    return stream.finish()[-1]


@pytest.mark.tools(23)
@pytest.mark.both_databases
def test_a_server_that_wants_no_login_is_connected_to(
    http: httpx.Client,
    client: Letta,
    pool: ThreadPoolExecutor,
    site: AuthorizationServer,
    add_server: AddServer,
) -> None:
    server_id = add_server()
    assert client.mcp_servers.tools.list(server_id) == []
    site.server.intercept = lambda request: None
    stream = ConnectStream(pool, http, f"/v1/mcp-servers/connect/{server_id}")

    first, last = stream.finish()

    name = client.mcp_servers.retrieve(server_id).server_name
    assert first == {"event": "connection_attempt", "server_name": name}
    assert last["event"] == "success"
    assert {"name", "inputSchema"} <= last["tools"][0].keys()
    # No event names, and no [DONE].
    assert all(line.startswith("data: {") for line in stream.lines if line)
    # What it lists is stored.
    stored = {tool.name for tool in client.mcp_servers.tools.list(server_id)}
    assert stored
    assert stored <= {tool["name"] for tool in last["tools"]}


@pytest.mark.tools(23)
@pytest.mark.both_databases
def test_a_user_logs_in_in_the_browser(
    servers: list[ServerProcess],
    http: httpx.Client,
    client: Letta,
    pool: ThreadPoolExecutor,
    site: AuthorizationServer,
    add_server: AddServer,
) -> None:
    server_id = add_server()
    stream = ConnectStream(pool, http, f"/v1/mcp-servers/connect/{server_id}")

    assert stream.wait_for("connection_attempt", "oauth_required") == {
        "event": "oauth_required",
        "message": "OAuth authentication required",
    }
    page = stream.wait_for("authorization_url")
    assert page.keys() == {"event", "url", "session_id"}
    assert page["session_id"].startswith("mcp-oauth-")
    assert len(page["session_id"]) == len("mcp-oauth-") + 8
    assert stream.wait_for("waiting_for_auth") == {
        "event": "waiting_for_auth",
        "message": "Waiting for user authorization...",
    }
    callback = site.approve(page["url"])
    assert callback.startswith(f"{servers[0].address}{CALLBACK_PATH}?")
    assert open_page(http, callback).json() == {
        "status": "success",
        "message": "Authorization successful",
        "server_url": site.server.url,
    }
    (last,) = stream.finish()

    assert last["event"] == "success"
    tools = client.mcp_servers.tools.list(server_id)
    assert {tool.name for tool in tools} <= {tool["name"] for tool in last["tools"]}
    assert len(tools) > 0
    (fields,) = (client.fields for client in site.clients.values())
    assert fields["client_name"] == "Holdfast"
    # Its state works once.
    assert open_page(http, callback).json() == {
        "status": "error",
        "message": "Invalid or expired state parameter",
    }
    # The next connection needs no other login.
    again = ConnectStream(pool, http, f"/v1/mcp-servers/connect/{server_id}").finish()
    assert [event["event"] for event in again] == ["connection_attempt", "success"]
    login = http.get(f"/v1/mcp-servers/{server_id}/login").json()
    assert (login["status"], login["scope"]) == ("authorized", "tools:read")


def test_a_user_who_says_no_is_told_so(
    http: httpx.Client, pool: ThreadPoolExecutor, site: AuthorizationServer, add_server: AddServer
) -> None:
    stream = ConnectStream(pool, http, f"/v1/mcp-servers/connect/{add_server()}")
    stream.wait_for("connection_attempt", "oauth_required")
    page = stream.wait_for("authorization_url")

    answer = open_page(http, site.deny(page["url"])).json()

    message = "OAuth error: access_denied - The user said <no>."
    assert answer == {"status": "error", "message": message}
    assert stream.finish()[-1] == {"event": "error", "message": message}


def test_a_server_that_is_not_stored_is_connected_to(
    http: httpx.Client, pool: ThreadPoolExecutor, site: AuthorizationServer
) -> None:
    body = {"server_name": "unsaved", "type": "streamable_http", "server_url": site.server.url}
    stream = ConnectStream(pool, http, "/v1/tools/mcp/servers/connect", body=body)
    stream.wait_for("connection_attempt", "oauth_required")
    page = stream.wait_for("authorization_url")
    assert open_page(http, site.approve(page["url"])).json()["status"] == "success"

    last = stream.finish()[-1]

    assert last["event"] == "success"
    assert len(last["tools"]) > 0
    assert "unsaved" not in http.get("/v1/tools/mcp/servers").json()


def test_a_failure_is_the_last_event(
    http: httpx.Client,
    pool: ThreadPoolExecutor,
    site: AuthorizationServer,
    add_server: AddServer,
) -> None:
    def connect(server_id: str) -> str:
        events = ConnectStream(pool, http, f"/v1/mcp-servers/connect/{server_id}").finish()
        assert events[-1]["event"] == "error"
        return str(events[-1]["message"])

    # Who sets a token wants that token to be used.
    refused = connect(add_server(auth_token="wrong"))
    assert refused.startswith("Connection failed: 401 Unauthorized")
    server_id = add_server()
    site.resource_metadata = {"authorization_servers": ["http://10.0.0.7"]}
    assert connect(server_id).startswith("Failed to trigger OAuth: This address cannot be used")
    site.server.stop()
    assert connect(server_id).startswith("Connection failed: ")
    site.server.start()
    unknown = "mcp_server-00000000-0000-4000-8000-000000000000"
    assert http.get(f"/v1/mcp-servers/connect/{unknown}").status_code == 404


@pytest.mark.both_databases
def test_a_token_that_is_refused_is_renewed_and_the_call_goes_on(
    http: httpx.Client,
    client: Letta,
    pool: ThreadPoolExecutor,
    site: AuthorizationServer,
    add_server: AddServer,
) -> None:
    server_id = add_server()
    log_in(pool, http, site, server_id)
    tool = next(t for t in client.mcp_servers.tools.list(server_id) if t.name == "echo")
    assert tool.id is not None
    for count in range(3):
        site.end_access_tokens()

        result = client.mcp_servers.tools.run(
            tool.id, mcp_server_id=server_id, args={"text": "hello"}
        )

        assert (result.status, result.func_return) == ("success", "hello")
        assert len(site.refreshes) == count + 1
    assert site.revoked_families == set()


@pytest.mark.both_databases
def test_many_calls_at_once_renew_a_token_once(
    http: httpx.Client,
    client: Letta,
    pool: ThreadPoolExecutor,
    site: AuthorizationServer,
    add_server: AddServer,
) -> None:
    server_id = add_server()
    log_in(pool, http, site, server_id)
    tool = next(t for t in client.mcp_servers.tools.list(server_id) if t.name == "echo")
    site.end_access_tokens()

    def run(number: int) -> object:
        return client.mcp_servers.tools.run(
            tool.id or "", mcp_server_id=server_id, args={"text": str(number)}
        ).func_return

    assert list(pool.map(run, range(24))) == [str(number) for number in range(24)]
    assert len(site.refreshes) == 1
    assert site.revoked_families == set()


@pytest.mark.both_databases
def test_a_login_that_has_ended_says_what_to_do(
    http: httpx.Client,
    client: Letta,
    pool: ThreadPoolExecutor,
    site: AuthorizationServer,
    add_server: AddServer,
) -> None:
    server_id = add_server()
    log_in(pool, http, site, server_id)
    name = client.mcp_servers.retrieve(server_id).server_name
    tool = next(t for t in client.mcp_servers.tools.list(server_id) if t.name == "echo")
    site.end_logins()

    for _ in range(2):
        with pytest.raises(APIStatusError) as failed:
            client.mcp_servers.tools.run(tool.id or "", mcp_server_id=server_id, args={})
        assert failed.value.status_code == 502
        assert (
            f"The login at the MCP server {name} has ended. Log in again: holdfast mcp login {name}."
            in failed.value.response.text
        )

    assert len(site.refreshes) == 1
    assert http.get(f"/v1/mcp-servers/{server_id}/login").json()["status"] == "ended"
    # So it is.
    assert log_in(pool, http, site, server_id)["event"] == "success"
    result = client.mcp_servers.tools.run(
        tool.id or "", mcp_server_id=server_id, args={"text": "back"}
    )
    assert result.func_return == "back"


@pytest.mark.slow
def test_a_login_outlives_a_restart_of_the_server(
    running_provider: ScriptedProvider,
    pool: ThreadPoolExecutor,
    site: AuthorizationServer,
    tmp_path: Path,
) -> None:
    """The server dies while the user is at the authorization page, and again before the tokens are renewed."""
    first = ServerProcess.start(tmp_path, **variables(running_provider))
    port = first.address.rpartition(":")[2]
    try:
        with connect_plainly(first.address) as http:
            config = {"mcp_server_type": "streamable_http", "server_url": site.server.url}
            created = http.post("/v1/mcp-servers/", json={"server_name": "notes", "config": config})
            path = f"/v1/mcp-servers/{created.json()['id']}"
            stream = ConnectStream(pool, http, f"/v1/mcp-servers/connect/{created.json()['id']}")
            page = stream.wait_for("connection_attempt", "oauth_required", "authorization_url")
    finally:
        first.kill()
    callback = site.approve(page["url"])
    second = ServerProcess.start(tmp_path, HOLDFAST_PORT=port, **variables(running_provider))
    try:
        with connect_plainly(second.address) as http:
            assert open_page(http, callback).json()["status"] == "success"
            assert set(http.patch(f"{path}/refresh").json()["added"]) >= {"echo"}
    finally:
        second.kill()
    site.end_access_tokens()
    third = ServerProcess.start(tmp_path, **variables(running_provider))
    try:
        with connect_plainly(third.address) as http:
            tools = {tool["name"]: tool["id"] for tool in http.get(f"{path}/tools").json()}
            body = {"args": {"text": "still here"}}
            ran = http.post(f"{path}/tools/{tools['echo']}/run", json=body).json()
            assert (ran["status"], ran["func_return"]) == ("success", "still here")
    finally:
        third.kill()
    assert len(site.refreshes) == 1


def test_a_login_can_be_forgotten_over_the_api(
    http: httpx.Client, pool: ThreadPoolExecutor, site: AuthorizationServer, add_server: AddServer
) -> None:
    server_id = add_server()
    path = f"/v1/mcp-servers/{server_id}/login"
    assert http.get(path).json()["status"] == "none"
    log_in(pool, http, site, server_id)

    assert http.delete(path).status_code == 204

    assert http.get(path).json()["status"] == "none"
    stream = ConnectStream(pool, http, f"/v1/mcp-servers/connect/{server_id}")
    page = stream.wait_for("connection_attempt", "oauth_required", "authorization_url")
    assert http.get(path).json()["status"] == "pending"
    open_page(http, site.deny(page["url"]))
    stream.finish()
    assert http.get(path).json()["failure"].startswith("OAuth error: access_denied")


def test_a_client_that_was_registered_by_hand_logs_in(
    http: httpx.Client, pool: ThreadPoolExecutor, site: AuthorizationServer, add_server: AddServer
) -> None:
    server_id = add_server()
    site.method = "client_secret_basic"
    log_in(pool, http, site, server_id)
    ((client_id, registered),) = site.clients.items()
    http.delete(f"/v1/mcp-servers/{server_id}/login")
    site.metadata = {"registration_endpoint": None}
    by_hand = {"x-oauth-client-id": client_id, "x-oauth-client-secret": registered.secret or ""}
    path = f"/v1/mcp-servers/connect/{server_id}"

    stream = ConnectStream(pool, http, path, headers=by_hand)
    stream.wait_for("connection_attempt", "oauth_required")
    page = stream.wait_for("authorization_url")
    open_page(http, site.approve(page["url"]))

    assert stream.finish()[-1]["event"] == "success"
    http.delete(f"/v1/mcp-servers/{server_id}/login")
    refused = ConnectStream(pool, http, path).finish()[-1]
    assert "lets no client register itself" in refused["message"]


def test_tokens_are_in_no_answer_and_no_log_and_are_encrypted_at_rest(
    servers: list[ServerProcess],
    http: httpx.Client,
    client: Letta,
    pool: ThreadPoolExecutor,
    site: AuthorizationServer,
    add_server: AddServer,
) -> None:
    site.method = "client_secret_post"
    server_id = add_server()
    stream = ConnectStream(pool, http, f"/v1/mcp-servers/connect/{server_id}")
    stream.wait_for("connection_attempt", "oauth_required")
    page = stream.wait_for("authorization_url")
    answers = [open_page(http, site.approve(page["url"])).text]
    stream.finish()
    answers += stream.lines
    tool = next(t for t in client.mcp_servers.tools.list(server_id) if t.name == "echo")
    path = f"/v1/mcp-servers/{server_id}/tools/{tool.id}/run"
    site.end_access_tokens()
    answers += [http.post(path, json={"args": {"text": "hi"}}).text]
    site.end_logins()
    answers += [http.post(path, json={"args": {"text": "hi"}}).text]
    log_in(pool, http, site, server_id)
    for query in ("", f"/{server_id}", f"/{server_id}/tools", f"/{server_id}/login"):
        answers.append(http.get(f"/v1/mcp-servers{query}").text)

    verifiers = {form["code_verifier"] for form in site.token_requests if "code_verifier" in form}
    secrets = site.secrets | verifiers
    assert len(secrets) >= 10
    text = "\n".join([*answers, *(server.log for server in servers)])
    assert [secret for secret in secrets if secret in text] == []
    for server in servers:
        stored = b"".join(file.read_bytes() for file in (server.home / ".holdfast").glob("*.db*"))
        assert len(stored) > 0
        assert [secret for secret in secrets if secret.encode() in stored] == []
