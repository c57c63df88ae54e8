"""MCP servers: what callers may say of them, what they are shown, and what they are not (tools-v1 §1.1 to §1.6)."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from fastapi import FastAPI
from httpx import AsyncClient, Response
from tests.doubles.mcp import ScriptedMcp
from tests.support.http_app import use_app
from tests.support.rig import WAIT_SECONDS

from holdfast.core.ids import DEFAULT_ORGANIZATION_ID
from holdfast.core.mcp_servers import MASK, McpServer, RemoteTool, Transport
from holdfast.errors import McpCallLost, McpTimedOut, McpUnauthorized, McpUnavailable
from holdfast.ports.mcp import ConfiguredServer, McpOptions
from holdfast.ports.services import Services

URL = "https://mcp.example/mcp"
UNKNOWN = "mcp_server-00000000-0000-4000-8000-000000000009"
STRING = {"type": "object", "properties": {"text": {"type": "string"}}}


@pytest.fixture
def mcp() -> ScriptedMcp:
    return ScriptedMcp({"weather": [RemoteTool(name="forecast", input_schema=STRING)]})


@pytest.fixture
def options() -> McpOptions:
    return McpOptions(stdio_over_api=True)


@pytest.fixture
def app(services: Services, mcp: ScriptedMcp, options: McpOptions) -> Iterator[FastAPI]:
    with use_app(replace(services, mcp=mcp, mcp_options=options)) as app:
        yield app


async def create(client: AsyncClient, name: str = "weather", **config: Any) -> Response:
    body = {"server_name": name, "config": config or {"server_url": URL}}
    return await client.post("/v1/mcp-servers/", json=body)


async def update(
    client: AsyncClient, server_id: str, name: str | None = None, **config: Any
) -> Response:
    body = {"server_name": name, "config": config}
    return await client.patch(f"/v1/mcp-servers/{server_id}", json=body)


@pytest.mark.tools(5)
@pytest.mark.parametrize(
    ("config", "kind"),
    [
        ({"server_url": URL}, "streamable_http"),
        ({"server_url": URL, "mcp_server_type": None}, "streamable_http"),
        ({"server_url": URL, "mcp_server_type": "sse"}, "sse"),
        ({"command": "run", "args": []}, "stdio"),
    ],
)
async def test_the_type_is_what_is_said_or_what_the_fields_show(
    client: AsyncClient, config: dict[str, Any], kind: str
) -> None:
    created = await create(client, **config)

    assert created.status_code == 200
    assert created.json()["mcp_server_type"] == kind


async def test_answers_have_every_field_of_the_type_and_no_other(client: AsyncClient) -> None:
    over_http = (await create(client, server_url=URL)).json()
    program = (await create(client, "files", command="run", args=["a b"])).json()

    assert over_http == {
        "mcp_server_type": "streamable_http",
        "id": over_http["id"],
        "server_name": "weather",
        "server_url": URL,
        "auth_header": None,
        "auth_token": None,
        "custom_headers": None,
        "is_configured": False,
    }
    assert program == {
        "mcp_server_type": "stdio",
        "id": program["id"],
        "server_name": "files",
        "command": "run",
        "args": ["a b"],
        "env": None,
        "is_configured": False,
    }
    assert (await client.get("/v1/mcp-servers/")).json() == [over_http, program]
    assert (await client.get(f"/v1/mcp-servers/{program['id']}")).json() == program


@pytest.mark.tools(17)
@pytest.mark.parametrize(
    ("given", "header", "token"),
    [
        ({"auth_token": "abc"}, "Authorization", f"Bearer {MASK}"),
        ({"auth_token": "Bearer abc"}, "Authorization", f"Bearer {MASK}"),
        (
            {"auth_token": "Basic abc", "auth_header": "authorization"},
            "authorization",
            f"Basic {MASK}",
        ),
        ({"auth_token": "abc", "auth_header": "X-API-Key"}, "X-API-Key", MASK),
        ({"auth_token": "Bearer {{ KEY | none }}"}, "Authorization", "Bearer {{ KEY | none }}"),
        ({"auth_token": ""}, None, None),
    ],
)
async def test_a_token_is_shown_masked_under_its_header(
    client: AsyncClient, given: dict[str, str], header: str | None, token: str | None
) -> None:
    created = (await create(client, server_url=URL, **given)).json()

    assert (created["auth_header"], created["auth_token"]) == (header, token)


async def test_no_answer_has_a_secret(client: AsyncClient) -> None:
    secrets: dict[str, Any] = {
        "auth_token": "hidden-1",
        "custom_headers": {"X-Key": "hidden-2", "X-B": "{{ B }}"},
    }
    one = await create(client, server_url=URL, **secrets)
    two = await create(client, "files", command="run", args=[], env={"KEY": "hidden-3"})
    answers = [
        one,
        two,
        await client.get("/v1/mcp-servers/"),
        await client.get("/v1/tools/mcp/servers"),
        await update(client, one.json()["id"]),
        await client.get(f"/v1/mcp-servers/{one.json()['id']}/tools"),
    ]

    assert one.json()["custom_headers"] == {"X-Key": MASK, "X-B": "{{ B }}"}
    assert two.json()["env"] == {"KEY": MASK}
    assert all("hidden" not in answer.text for answer in answers)


@pytest.mark.parametrize(
    "config",
    [
        {"auth_token": "hidden"},
        {"auth_token": "hidden" * 2_000, "server_url": URL},
        {"custom_headers": {"X-Key": "hidden"}},
        {"custom_headers": {"X-Key": ["hidden"]}, "server_url": URL},
        {"command": "run", "env": {"KEY": "hidden"}},
        {"server_url": URL, "auth_token": "hidden", "mcp_server_type": "none"},
        {"server_url": URL, "auth_header": "hidden", "mcp_server_type": "none"},
        {"server_url": URL, "auth_header": ["hidden"]},
        {"server_url": URL, "headers": {"Authorization": "hidden"}},
        {"server_url": URL, "token": "hidden"},
        {"server_url": URL, "custom_headers": {"X-Key: hidden": 1}},
        {"command": "run", "args": "hidden"},
        {"command": "run", "args": ["--key", "hidden", 5]},
        {"command": "run", "args": ["--key", "hidden"], "unknown": 1},
    ],
)
async def test_a_refusal_does_not_repeat_a_secret(
    client: AsyncClient, config: dict[str, Any]
) -> None:
    body = {"server_name": "weather", "config": config}
    for refused in (
        await client.post("/v1/mcp-servers/", json=body),
        await client.post("/v1/mcp-servers/", json={"config": config}),
        await client.put("/v1/tools/mcp/servers", json=config),
    ):
        assert refused.status_code == 422
        assert "hidden" not in refused.text


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("", "Value error, server_url cannot be empty"),
        (
            "ftp://x",
            "Value error, server_url must start with 'http://' or 'https://', got: 'ftp://x'",
        ),
        ("mcp.example", "must start with 'http://' or 'https://', got: 'mcp.example'"),
        ("http://", "Value error, server_url must have a valid host, got: 'http://'"),
        ("http:///path", "must have a valid host"),
        ("http://[::1", "must have a valid host"),
    ],
)
async def test_a_malformed_address_is_a_422_that_says_why(
    client: AsyncClient, url: str, why: str
) -> None:
    refused = await create(client, server_url=url)

    assert refused.status_code == 422
    # The detail is the Python rendering of a list, with quotes of either kind.
    assert why.replace("'", "") in refused.json()["detail"].replace("\\", "").replace("'", "")


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:8000/mcp",
        "http://localhost/mcp",
        "http://10.0.0.1/mcp",
        "http://169.254.169.254/latest/meta-data",
        "http://[::1]/mcp",
    ],
)
async def test_a_private_address_is_refused_unless_the_operator_allows_it(
    client: AsyncClient, mcp: ScriptedMcp, url: str
) -> None:
    refused = await create(client, server_url=url)

    assert refused.status_code == 400
    assert "HOLDFAST_ALLOWED_PRIVATE_HOSTS" in refused.json()["detail"]
    assert mcp.listed == []
    created = (await create(client)).json()
    assert (await update(client, created["id"], server_url=url)).status_code == 400


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"mcp_server_type": "websocket", "server_url": URL},
        {"mcp_server_type": ["sse"], "server_url": URL},
        {"mcp_server_type": "stdio", "server_url": URL},
        {"mcp_server_type": "sse", "command": "run", "args": []},
        {"server_url": None},
        {"server_url": URL, "command": "run", "args": []},
        {"server_url": URL, "unknown": 1},
        {"server_url": URL, "custom_headers": {"X-A": 1}},
        {"server_url": URL, "custom_headers": []},
        {"server_url": URL, "custom_headers": {f"X-{number}": "1" for number in range(101)}},
        {"server_url": URL, "auth_token": "x" * 8_001},
        {"server_url": f"{URL}/{'x' * 2_000}"},
        {"command": "run"},
        {"command": "", "args": []},
        {"command": "run", "args": "a b"},
        {"command": "run", "args": ["a"] * 1_001},
    ],
)
async def test_a_config_of_another_form_is_a_422(
    client: AsyncClient, config: dict[str, Any]
) -> None:
    body = {"server_name": "weather", "config": config}
    refused = await client.post("/v1/mcp-servers/", json=body)

    assert refused.status_code == 422
    assert (await client.get("/v1/mcp-servers/")).json() == []


@pytest.mark.parametrize(
    "body",
    [
        {},
        [],
        {"server_name": "weather"},
        {"config": {"server_url": URL}},
        {"server_name": "", "config": {"server_url": URL}},
        {"server_name": "x" * 201, "config": {"server_url": URL}},
        {"server_name": "a\nb", "config": {"server_url": URL}},
        {"server_name": "weather", "config": URL},
        {"server_name": "weather", "config": None},
        {"server_name": "weather", "config": {"server_url": URL}, "unknown": 1},
    ],
)
async def test_a_body_of_another_form_is_a_422(client: AsyncClient, body: Any) -> None:
    assert (await client.post("/v1/mcp-servers/", json=body)).status_code == 422


@pytest.mark.parametrize(
    "config",
    [
        {"auth_token": "a\r\nX-Other: b"},
        {"auth_token": "日本"},
        {"auth_token": "abc", "auth_header": "not a name"},
        {"custom_headers": {"X-A": "a\nb"}},
        {"custom_headers": {"": "a"}},
        {"custom_headers": {"Host": "internal.example"}},
        {"custom_headers": {"Content-Length": "5"}},
    ],
)
async def test_a_header_that_would_break_requests_is_refused(
    client: AsyncClient, config: dict[str, Any]
) -> None:
    refused = await create(client, server_url=URL, **config)

    assert refused.status_code == 400
    assert "header" in refused.json()["detail"]


@pytest.mark.parametrize(
    "config",
    [
        {"server_url": URL, "auth_header": "Authorization: Bearer hidden", "auth_token": "a"},
        {"server_url": URL, "custom_headers": {"X-Key: hidden": "a"}},
        {"server_url": URL, "custom_headers": {"X-Key": "hidden\n"}, "auth_token": "a\nhidden"},
        {"command": "run", "args": [], "env": {"KEY=hidden": ""}},
    ],
)
async def test_a_refusal_does_not_repeat_what_was_pasted_as_a_name(
    client: AsyncClient, config: dict[str, Any]
) -> None:
    refused = await create(client, **config)

    assert refused.status_code == 400
    assert "hidden" not in refused.text


@pytest.mark.parametrize(
    "config",
    [
        {"command": "  ", "args": []},
        {"command": "run", "args": [], "env": {"": "a"}},
        {"command": "run", "args": [], "env": {"A=B": "a"}},
    ],
)
async def test_a_program_that_could_not_be_started_is_refused(
    client: AsyncClient, config: dict[str, Any]
) -> None:
    assert (await create(client, **config)).status_code == 400


@pytest.mark.tools(4)
@pytest.mark.parametrize("options", [McpOptions()], ids=["stdio_disabled"])
async def test_programs_are_the_operators_to_name(
    client: AsyncClient, services: Services, mcp: ScriptedMcp
) -> None:
    refused = await create(client, command="run", args=[])
    also = await client.put(
        "/v1/tools/mcp/servers",
        json={"server_name": "a", "type": "stdio", "command": "b", "args": []},
    )

    for answer in (refused, also):
        assert answer.status_code == 400
        text = "MCP stdio servers are disabled. Set MCP_DISABLE_STDIO=false to enable them."
        assert text in answer.json()["detail"]
        assert "HOLDFAST_MCP_CONFIG" in answer.json()["detail"]

    # One that was created while it was allowed is not started any more.
    stored = McpServer(
        id=UNKNOWN,
        organization_id=DEFAULT_ORGANIZATION_ID,
        name="files",
        transport=Transport.STDIO,
        command="run",
        created_at=services.clock.now(),
        updated_at=services.clock.now(),
    )
    await services.store.write(lambda tx: tx.mcp_servers.add(stored))
    refreshed = await client.patch(f"/v1/mcp-servers/{UNKNOWN}/refresh")
    assert refreshed.status_code == 400
    assert (await update(client, UNKNOWN, command="other")).status_code == 400
    assert mcp.listed == []
    assert (await client.delete(f"/v1/mcp-servers/{UNKNOWN}")).status_code == 204


@pytest.mark.tools(18)
async def test_a_change_leaves_what_it_does_not_name(client: AsyncClient, mcp: ScriptedMcp) -> None:
    headers = {"X-A": "one"}
    created = (
        await create(client, server_url=URL, auth_token="abc", custom_headers=headers)
    ).json()
    server_id = created["id"]

    for config in ({}, {"server_url": None}, {"mcp_server_type": "streamable_http"}):
        assert (await update(client, server_id, **config)).json() == created
    # What was shown and is sent back is no change either.
    shown = {
        name: created[name]
        for name in ("auth_token", "auth_header", "custom_headers", "server_url")
    }
    assert (await update(client, server_id, **shown)).json() == created
    await client.patch(f"/v1/mcp-servers/{server_id}/refresh")
    assert dict(mcp.listed[-1].headers) == {"Authorization": "Bearer abc", "X-A": "one"}

    await update(client, server_id, custom_headers={"X-A": MASK, "X-B": "two"}, auth_token="new")
    await client.patch(f"/v1/mcp-servers/{server_id}/refresh")
    assert dict(mcp.listed[-1].headers) == {
        "Authorization": "Bearer new",
        "X-A": "one",
        "X-B": "two",
    }

    cleared = await update(client, server_id, auth_token=None, custom_headers=None)
    assert (cleared.json()["auth_token"], cleared.json()["custom_headers"]) == (None, None)
    await client.patch(f"/v1/mcp-servers/{server_id}/refresh")
    assert mcp.listed[-1].headers == ()
    assert mcp.forgotten == [server_id] * 6


async def test_a_default_that_may_be_secret_is_masked_and_kept(
    client: AsyncClient, mcp: ScriptedMcp
) -> None:
    given: dict[str, Any] = {
        "auth_token": "Bearer {{ KEY | sk-hidden }}",
        "custom_headers": {"X-A": "{{ A | Hidden }}", "X-B": "{{ B | none }}"},
    }
    created = (await create(client, server_url=URL, **given)).json()
    masked = f"Bearer {{{{ KEY | {MASK} }}}}"
    assert created["auth_token"] == masked
    assert created["custom_headers"] == {"X-A": f"{{{{ A | {MASK} }}}}", "X-B": "{{ B | none }}"}

    shown = {name: created[name] for name in ("auth_token", "auth_header", "custom_headers")}
    assert (await update(client, created["id"], **shown)).json() == created
    await client.patch(f"/v1/mcp-servers/{created['id']}/refresh")
    assert dict(mcp.listed[-1].headers) == {
        "Authorization": "Bearer sk-hidden",
        "X-A": "Hidden",
        "X-B": "none",
    }

    # It is a stored secret like others.
    moved = await update(client, created["id"], server_url="https://thief.example/mcp", **shown)
    assert moved.status_code == 400
    assert "auth_token and custom_headers" in moved.json()["detail"]
    assert (await update(client, created["id"], auth_token=f"Basic {masked}")).status_code == 400
    assert (await create(client, "other", server_url=URL, auth_token=masked)).status_code == 400


async def test_the_environment_of_a_program_can_be_changed_alone(
    client: AsyncClient, mcp: ScriptedMcp
) -> None:
    created = (await create(client, command="run", args=["a"], env={"A": "one"})).json()

    changed = await update(client, created["id"], env={"A": MASK, "B": "{{ B | two }}"})
    assert changed.json()["env"] == {"A": MASK, "B": "{{ B | two }}"}
    await client.patch(f"/v1/mcp-servers/{created['id']}/refresh")
    assert mcp.listed[-1].env == (("A", "one"), ("B", "two"))
    assert (mcp.listed[-1].command, mcp.listed[-1].args) == ("run", ("a",))

    again = await update(client, created["id"], command=None, args=None)
    assert (again.json()["command"], again.json()["args"]) == ("run", ["a"])


@pytest.mark.parametrize(
    "config",
    [{"auth_token": MASK}, {"auth_token": f"Basic {MASK}"}, {"custom_headers": {"X-New": MASK}}],
)
async def test_a_mask_is_no_secret(client: AsyncClient, config: dict[str, Any]) -> None:
    created = (await create(client, server_url=URL, auth_token="abc")).json()

    for refused in (
        await update(client, created["id"], **config),
        await create(client, "other", server_url=URL, **config),
    ):
        assert refused.status_code == 400
        assert "stands for a secret" in refused.json()["detail"]


@pytest.mark.parametrize(
    ("config", "status"),
    [
        ({}, 400),
        ({"auth_token": f"Bearer {MASK}"}, 400),
        ({"auth_token": "abc"}, 400),
        ({"auth_token": "new", "custom_headers": {"X-A": MASK}}, 400),
        ({"auth_token": None, "custom_headers": None}, 200),
        ({"auth_token": "abc", "custom_headers": {"X-A": "one"}}, 200),
        ({"auth_token": "new", "custom_headers": {"X-B": "two"}}, 200),
    ],
)
async def test_stored_secrets_are_not_sent_to_another_address(
    client: AsyncClient, config: dict[str, Any], status: int
) -> None:
    created = (
        await create(client, server_url=URL, auth_token="abc", custom_headers={"X-A": "one"})
    ).json()

    moved = await update(client, created["id"], server_url="https://thief.example/mcp", **config)

    assert moved.status_code == status
    if status == 400:
        assert "not sent to another address" in moved.json()["detail"]


async def test_a_server_with_placeholders_only_may_move(client: AsyncClient) -> None:
    created = (await create(client, server_url=URL, auth_token="Bearer {{ KEY }}")).json()

    moved = await update(client, created["id"], server_url="https://other.example/mcp")

    assert moved.json()["server_url"] == "https://other.example/mcp"


@pytest.mark.parametrize(
    ("given", "config", "types"),
    [
        ({"server_url": URL}, {"mcp_server_type": "sse"}, "streamable_http to sse"),
        ({"server_url": URL}, {"command": "run", "args": []}, "streamable_http to stdio"),
        ({"command": "run", "args": []}, {"server_url": URL}, "stdio to streamable_http"),
    ],
)
async def test_the_type_of_a_server_cannot_change(
    client: AsyncClient, given: dict[str, Any], config: dict[str, Any], types: str
) -> None:
    created = (await create(client, **given)).json()

    refused = await update(client, created["id"], **config)

    assert refused.status_code == 400
    assert f"Cannot change the type of MCP server weather from {types}" in refused.json()["detail"]


async def test_an_unknown_server_is_not_found(client: AsyncClient) -> None:
    for method, path in (
        ("GET", ""),
        ("PATCH", ""),
        ("DELETE", ""),
        ("PATCH", "/refresh"),
        ("GET", "/tools"),
        ("GET", "/tools/tool-00000000-0000-4000-8000-000000000001"),
        ("POST", "/tools/tool-00000000-0000-4000-8000-000000000001/run"),
    ):
        body: Any = {"config": {}} if (method, path) == ("PATCH", "") else None
        answer = await client.request(method, f"/v1/mcp-servers/{UNKNOWN}{path}", json=body)
        assert answer.status_code == 404, (method, path)
        assert answer.json()["detail"] == f"MCPServer not found with id='{UNKNOWN}'"
        malformed = await client.request(method, f"/v1/mcp-servers/weather{path}", json=body)
        assert malformed.status_code == 422


@pytest.mark.parametrize(
    "failure",
    [
        McpUnavailable("weather", "no route"),
        McpUnauthorized("weather"),
        McpTimedOut("weather", "connecting", 30),
        McpCallLost("weather", "the connection was lost"),
    ],
)
@pytest.mark.tools(2, 12)
async def test_a_server_that_fails_is_told_apart_from_this_one(
    client: AsyncClient, mcp: ScriptedMcp, failure: Exception
) -> None:
    mcp.failures.append(failure)
    created = (await create(client)).json()
    path = f"/v1/mcp-servers/{created['id']}"
    assert (await client.get(f"{path}/tools")).json() == []

    mcp.failures.append(failure)
    refreshed = await client.patch(f"{path}/refresh")
    assert refreshed.status_code == 404
    detail = refreshed.json()["detail"]
    assert detail["code"] == "MCPServerUnavailable"
    assert detail["message"] == "Could not connect to MCP server weather to resync tools"
    assert detail["error"] == str(failure)

    await client.patch(f"{path}/refresh")
    (tool,) = (await client.get(f"{path}/tools")).json()
    mcp.failures.append(failure)
    ran = await client.post(f"{path}/tools/{tool['id']}/run", json={"args": {}})
    match failure:
        case McpCallLost():
            assert (ran.status_code, ran.json()["status"]) == (200, "error")
        case McpTimedOut():
            assert ran.status_code == 408
            assert ran.json()["detail"] == f"TIMEOUT: {failure}"
            assert ran.headers["x-should-retry"] == "false"
        case McpUnavailable():
            assert ran.status_code == 502
            assert ran.json() == {
                "error": {
                    "type": "mcp_connection_error",
                    "message": "Failed to connect to MCP server.",
                    "detail": f"INTERNAL_SERVER_ERROR: {failure.why}",
                }
            }


async def test_a_tool_is_run_with_its_arguments_and_without_secrets(
    client: AsyncClient, mcp: ScriptedMcp
) -> None:
    created = (await create(client, server_url=URL, auth_token="{{ KEY }}")).json()
    path = f"/v1/mcp-servers/{created['id']}/tools"
    (tool,) = (await client.get(path)).json()

    ran = await client.post(
        f"{path}/{tool['id']}/run", json={"args": {"text": "hi", "request_heartbeat": True}}
    )
    bare = await client.post(f"{path}/{tool['id']}/run")

    assert ran.json() == {
        "status": "success",
        "func_return": "forecast({'text': 'hi'})",
        "stdout": None,
        "stderr": None,
        "sandbox_config_fingerprint": None,
        "agent_state": None,
    }
    assert bare.json()["func_return"] == "forecast({})"
    assert mcp.calls[0].endpoint.headers == (("Authorization", "Bearer {{ KEY }}"),)
    assert mcp.calls[0].endpoint.agent_id is None
    malformed: tuple[Any, ...] = ({"args": []}, {"unknown": 1}, [], "args")
    for body in malformed:
        assert (await client.post(f"{path}/{tool['id']}/run", json=body)).status_code == 422


@pytest.mark.tools(14, 16)
async def test_a_refresh_for_an_agent_has_the_secrets_of_that_agent(
    client: AsyncClient, mcp: ScriptedMcp
) -> None:
    agent = {"model": "openai/gpt-x", "secrets": {"KEY": "abc"}, "include_base_tools": False}
    agent_id = (await client.post("/v1/agents/", json=agent)).json()["id"]
    created = (await create(client, server_url=URL, auth_token="{{ KEY | none }}")).json()
    path = f"/v1/mcp-servers/{created['id']}/refresh"

    await client.patch(path, params={"agent_id": agent_id})
    await client.patch(path)
    assert [endpoint.headers for endpoint in mcp.listed[-2:]] == [
        (("Authorization", "Bearer abc"), ("X-Agent-Id", agent_id)),
        (("Authorization", "Bearer none"),),
    ]

    unknown = await client.patch(path, params={"agent_id": "agent-x"})
    assert unknown.status_code == 404


CONFIGURED = {
    "files": ConfiguredServer(
        name="files", command="npx", args=("--key", "hidden"), env={"A": "hidden"}
    ),
    "search": ConfiguredServer(
        name="search",
        url="https://u:hidden@mcp.example/s/hidden?key=hidden",
        headers={"X-Key": "hidden"},
    ),
    "plain": ConfiguredServer(name="plain", url="http://127.0.0.1:9/sse", is_sse=True),
}


async def _store_configured(services: Services, *names: str) -> dict[str, str]:
    """The rows that a server makes of the operator's file, and their ids by name."""
    ids = {}
    for name in names:
        server = McpServer(
            id=services.ids.new_id("mcp_server"),  # type: ignore[arg-type]  # the kind's own value
            organization_id=DEFAULT_ORGANIZATION_ID,
            name=name,
            transport=Transport.STREAMABLE_HTTP,
            is_configured=True,
            created_at=services.clock.now(),
            updated_at=services.clock.now(),
        )
        await services.store.write(lambda tx, server=server: tx.mcp_servers.add(server))  # type: ignore[misc]  # bound at once
        ids[name] = server.id
    return ids


@pytest.mark.parametrize("options", [McpOptions(configured=CONFIGURED)], ids=["configured"])
async def test_servers_of_the_operator_are_used_and_not_changed(
    client: AsyncClient, services: Services, mcp: ScriptedMcp
) -> None:
    ids = await _store_configured(services, "files", "search", "plain", "gone")

    shown = {item["server_name"]: item for item in (await client.get("/v1/mcp-servers/")).json()}
    assert "hidden" not in str(shown)
    assert all(server["is_configured"] for server in shown.values())
    assert shown["files"]["args"] == [MASK, MASK]
    assert shown["search"]["server_url"] == f"https://mcp.example/{MASK}"
    assert shown["plain"]["server_url"] == "http://127.0.0.1:9/sse"
    assert shown["plain"]["mcp_server_type"] == "sse"

    for name, server_id in ids.items():
        changed = await update(client, server_id, custom_headers={"X-Key": "mine"})
        assert changed.status_code == 400
        assert "HOLDFAST_MCP_CONFIG" in changed.json()["detail"]
        assert ("can be deleted" in changed.json()["detail"]) is (name == "gone")
        refreshed = await client.patch(f"/v1/mcp-servers/{server_id}/refresh")
        assert refreshed.status_code == (404 if name == "gone" else 200)
        deleted = await client.delete(f"/v1/mcp-servers/{server_id}")
        assert deleted.status_code == (204 if name == "gone" else 400)

    files, search, plain = mcp.listed
    assert (files.command, files.args, files.env) == (
        "npx",
        ("--key", "hidden"),
        (("A", "hidden"),),
    )
    assert (search.url, search.headers) == (CONFIGURED["search"].url, (("X-Key", "hidden"),))
    assert plain.transport is Transport.SSE
    assert all(endpoint.is_trusted for endpoint in mcp.listed)


async def test_servers_that_callers_named_are_not_trusted(
    client: AsyncClient, mcp: ScriptedMcp
) -> None:
    await create(client)
    await create(client, "files", command="run", args=[])

    assert [endpoint.is_trusted for endpoint in mcp.listed] == [False, False]


@pytest.fixture
async def stored(client: AsyncClient) -> str:
    return str((await create(client)).json()["id"])


async def test_a_custom_tool_does_not_replace_a_tool_of_an_mcp_server(
    client: AsyncClient, stored: str
) -> None:
    source = 'def forecast() -> str:\n    """Mine."""\n    return ""\n'
    refused = await client.post("/v1/tools/", json={"source_code": source})

    assert refused.status_code == 400
    assert "MCP server" in refused.json()["detail"]


async def test_a_schema_that_a_caller_sets_stays_until_the_next_refresh(
    client: AsyncClient, stored: str
) -> None:
    (tool,) = (await client.get(f"/v1/mcp-servers/{stored}/tools")).json()
    schema = {"name": "forecast", "description": "Mine.", "parameters": {"properties": {"a": {}}}}

    changed = await client.patch(f"/v1/tools/{tool['id']}", json={"json_schema": schema})
    assert changed.json()["description"] == "Mine."
    assert changed.json()["json_schema"]["mcp:SCHEMA_STATUS"] == "INVALID"
    renamed = await client.patch(
        f"/v1/tools/{tool['id']}", json={"json_schema": schema | {"name": "other"}}
    )
    assert renamed.status_code == 400

    refreshed = await client.patch(f"/v1/mcp-servers/{stored}/refresh")
    assert refreshed.json() == {"deleted": [], "updated": ["forecast"], "added": []}
    assert (await client.get(f"/v1/tools/{tool['id']}")).json() == tool


async def test_tools_of_mcp_servers_are_no_built_in_ones(client: AsyncClient, stored: str) -> None:
    async def count(**query: Any) -> int:
        return int((await client.get("/v1/tools/count", params=query)).text)

    assert await count(tool_types="external_mcp") == 1
    assert await count(exclude_letta_tools=True) == 1


async def test_a_refresh_says_which_tools_cannot_be_used(
    client: AsyncClient, mcp: ScriptedMcp, stored: str
) -> None:
    bad = RemoteTool(name="bad", input_schema={"properties": {"a": {"type": "array"}}})
    mcp.tools["weather"] = [bad, RemoteTool(name="not.good"), *mcp.tools["weather"]]

    refreshed = (await client.patch(f"/v1/mcp-servers/{stored}/refresh")).json()

    assert [item["name"] for item in refreshed["skipped"]] == ["not.good", "bad"]
    assert (refreshed["deleted"], refreshed["updated"], refreshed["added"]) == ([], [], [])


async def test_a_listing_that_is_no_json_does_no_harm(
    client: AsyncClient, mcp: ScriptedMcp, stored: str
) -> None:
    hostile = [
        RemoteTool(name="a\ud800", listing={"name": "a\ud800"}),
        RemoteTool(
            name="b",
            description="\ud800\0",
            input_schema={"properties": {"a": {"const": float("nan")}}},
            annotations={"title": "\ud800", "readOnlyHint": "perhaps"},
            listing={"title": "\ud800", "x": 10**40},
        ),
    ]
    mcp.tools["weather"] = hostile

    refreshed = await client.patch(f"/v1/mcp-servers/{stored}/refresh")
    live = await client.get("/v1/tools/mcp/servers/weather/tools")
    added = await client.post("/v1/tools/mcp/servers/weather/b")

    assert (refreshed.status_code, live.status_code, added.status_code) == (200, 200, 400)
    assert [item["health"]["status"] for item in live.json()] == ["STRICT_COMPLIANT", "INVALID"]


@pytest.mark.parametrize("options", [McpOptions(approve="destructive")], ids=["destructive"])
async def test_a_tool_that_becomes_destructive_waits_for_approval_where_it_is_held(
    client: AsyncClient, mcp: ScriptedMcp
) -> None:
    reads = {"readOnlyHint": True}
    mcp.tools["weather"] = [RemoteTool(name="a", annotations=reads), RemoteTool(name="b")]
    server_id = (await create(client)).json()["id"]
    tools = (await client.get(f"/v1/mcp-servers/{server_id}/tools")).json()
    assert [tool["default_requires_approval"] for tool in tools] == [None, True]
    body = {"model": "openai/gpt-x", "include_base_tools": False}
    body["tool_ids"] = [tool["id"] for tool in tools]
    agent_id = (await client.post("/v1/agents/", json=body)).json()["id"]
    other_id = (await client.post("/v1/agents/", json=body | {"tool_ids": []})).json()["id"]

    async def guarded(agent: str) -> list[str]:
        rules = (await client.get(f"/v1/agents/{agent}")).json()["tool_rules"]
        return [rule["tool_name"] for rule in rules if rule["type"] == "requires_approval"]

    assert await guarded(agent_id) == ["b"]
    mcp.tools["weather"] = [RemoteTool(name="a"), RemoteTool(name="b")]
    await client.patch(f"/v1/mcp-servers/{server_id}/refresh")

    assert await guarded(agent_id) == ["b", "a"]
    assert await guarded(other_id) == []


async def test_refreshes_at_the_same_moment_store_each_tool_once(
    client: AsyncClient, mcp: ScriptedMcp, stored: str
) -> None:
    mcp.tools["weather"] = [RemoteTool(name=f"tool-{number}") for number in range(50)]

    answers = await asyncio.gather(
        *(client.patch(f"/v1/mcp-servers/{stored}/refresh") for _ in range(5))
    )

    assert [answer.status_code for answer in answers] == [200] * 5
    assert sorted(len(answer.json()["added"]) for answer in answers) == [0, 0, 0, 0, 50]
    assert len((await client.get(f"/v1/mcp-servers/{stored}/tools")).json()) == 50


async def test_a_list_that_is_older_than_the_stored_tools_is_not_stored(
    client: AsyncClient, mcp: ScriptedMcp, stored: str
) -> None:
    mcp.tools["weather"] = [RemoteTool(name="a")]
    gate = mcp.gate = asyncio.Event()
    mcp.asked = asyncio.Event()
    slow = asyncio.create_task(client.patch(f"/v1/mcp-servers/{stored}/refresh"))
    async with asyncio.timeout(WAIT_SECONDS):
        await mcp.asked.wait()
    mcp.gate = asyncio.Event()
    mcp.gate.set()
    mcp.tools["weather"] = [RemoteTool(name="a"), RemoteTool(name="b")]
    fast = (await client.patch(f"/v1/mcp-servers/{stored}/refresh")).json()
    gate.set()

    assert fast["added"] == ["a", "b"]
    assert (await slow).json() == {"deleted": [], "updated": [], "added": []}
    tools = (await client.get(f"/v1/mcp-servers/{stored}/tools")).json()
    assert [tool["name"] for tool in tools] == ["a", "b"]


async def test_connecting_adds_tools_and_deletes_none(
    client: AsyncClient, mcp: ScriptedMcp, stored: str
) -> None:
    """Whoever connects may be allowed less at the server than those whose agents have its tools."""
    mcp.tools["weather"] = [RemoteTool(name="a"), RemoteTool(name="b")]
    await client.patch(f"/v1/mcp-servers/{stored}/refresh")
    mcp.tools["weather"] = [RemoteTool(name="b"), RemoteTool(name="c")]

    assert '"success"' in (await client.get(f"/v1/mcp-servers/connect/{stored}")).text
    tools = (await client.get(f"/v1/mcp-servers/{stored}/tools")).json()
    assert [tool["name"] for tool in tools] == ["a", "b", "c"]
