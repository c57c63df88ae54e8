"""How an MCP server is reached for a caller: headers, environment, logins and what is missing (tools-v1 §1.4, §1.9)."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from msgspec.structs import replace as changed
from tests.doubles.mcp import ScriptedMcp
from tests.support.values import ident, moment

from holdfast.adapters.outgoing.guarded import GuardedOutgoing
from holdfast.core.addresses import parse_allowed
from holdfast.core.ids import DEFAULT_ORGANIZATION_ID, DEFAULT_USER_ID
from holdfast.core.mcp_servers import Endpoint, McpSecrets, McpServer, Transport
from holdfast.errors import InvalidArgument, McpUnauthorized, McpUnavailable, ToolError
from holdfast.ports.mcp import ConfiguredServer, McpOptions
from holdfast.ports.services import Services
from holdfast.usecases import mcp_logins
from holdfast.usecases.mcp_endpoints import McpCaller, build_endpoint, use

URL = "https://mcp.example/mcp"
AGENT = "agent-1"
CALLER = McpCaller(organization_id=DEFAULT_ORGANIZATION_ID, user_id=DEFAULT_USER_ID)


def server(**fields: Any) -> McpServer:
    values: dict[str, Any] = {
        "id": ident("mcp_server", 1),
        "organization_id": DEFAULT_ORGANIZATION_ID,
        "name": "weather",
        "transport": Transport.STREAMABLE_HTTP,
        "server_url": URL,
        "created_at": moment(1),
        "updated_at": moment(1),
    }
    return McpServer(**values | fields)


def token(text: str, **fields: Any) -> McpServer:
    return server(secrets=McpSecrets(auth_token=text), **fields)


def agent(values: Mapping[str, str] | None = None, *, is_strict: bool = True) -> McpCaller:
    return changed(CALLER, agent_id=AGENT, values=values or {}, is_strict=is_strict)


class Logins:
    """The tokens of a user's login, and how often they were asked for."""

    def __init__(self) -> None:
        self.tokens: list[str | None] = []
        self.asked: list[tuple[str, str, str, bool]] = []

    async def find_token(
        self,
        services: Services,
        organization_id: str,
        user_id: str,
        url: str,
        *,
        renew: bool = False,
        rejected: str | None = None,
    ) -> str | None:
        del services, rejected
        self.asked.append((organization_id, user_id, url, renew))
        return self.tokens[min(len(self.asked), len(self.tokens)) - 1] if self.tokens else None


@pytest.fixture
def logins(monkeypatch: pytest.MonkeyPatch) -> Logins:
    made = Logins()
    monkeypatch.setattr(mcp_logins, "find_token", made.find_token)
    return made


async def reach(services: Services, stored: McpServer, caller: McpCaller = CALLER) -> Endpoint:
    mcp = ScriptedMcp()
    await use(services, stored, caller, mcp.list_tools)
    return mcp.listed[-1]


@pytest.mark.tools(14)
async def test_placeholders_are_filled_in_with_the_secrets_of_the_agent(
    services: Services, logins: Logins
) -> None:
    stored = token("Bearer {{ KEY | none }}")

    filled = await reach(services, stored, agent({"KEY": "abc"}))
    other = await reach(services, stored, agent({"KEY": "def"}))
    without = await reach(services, stored, agent())

    agent_header = ("X-Agent-Id", AGENT)
    assert filled.headers == (("Authorization", "Bearer abc"), agent_header)
    assert other.headers == (("Authorization", "Bearer def"), agent_header)
    assert without.headers == (("Authorization", "Bearer none"), agent_header)


@pytest.mark.tools(15)
async def test_a_secret_that_an_agent_does_not_have_is_an_error_of_the_tool(
    services: Services, logins: Logins
) -> None:
    stored = server(
        secrets=McpSecrets(custom_headers={"X-A": "{{ GIVEN }}", "X-B": "{{ key }} {{ MISSING }}"})
    )

    with pytest.raises(ToolError) as raised:
        await reach(services, stored, agent({"GIVEN": "abc"}))
    assert str(raised.value) == (
        "The MCP server weather needs the secret MISSING, which this agent does not have."
    )

    # Nobody's secrets: all of the text stays as it is.
    sent = dict((await reach(services, stored)).headers)
    assert sent == {"X-A": "{{ GIVEN }}", "X-B": "{{ key }} {{ MISSING }}"}


@pytest.mark.tools(15)
async def test_a_lower_case_name_is_no_placeholder(services: Services, logins: Logins) -> None:
    reached = await reach(services, token("{{ key }}"), agent({"key": "abc"}))

    assert dict(reached.headers)["Authorization"] == "Bearer {{ key }}"


@pytest.mark.tools(16, 17)
async def test_headers_and_token_are_both_sent(services: Services, logins: Logins) -> None:
    both = McpSecrets(auth_token="abc", custom_headers={" X-A: ": "'one'", "X-Empty": ""})

    plain = await reach(services, server(secrets=both))
    named = await reach(services, server(secrets=both, auth_header="X-API-Key"))

    assert plain.headers == (("Authorization", "Bearer abc"), ("X-A", "one"))
    assert named.headers == (("X-API-Key", "abc"), ("X-A", "one"))


@pytest.mark.parametrize("value", ["a\r\nX-Other: b", "日本"])
async def test_a_secret_that_is_no_header_is_refused_and_not_shown(
    services: Services, logins: Logins, value: str
) -> None:
    for caller, kind in (
        (agent({"KEY": value}), ToolError),
        (agent({"KEY": value}, is_strict=False), InvalidArgument),
    ):
        with pytest.raises(kind) as raised:
            await reach(services, token("Bearer {{ KEY }}"), caller)
        assert value not in str(raised.value)
        assert "Authorization" in str(raised.value)


async def test_no_text_of_an_endpoint_or_a_caller_has_a_secret(
    services: Services, logins: Logins
) -> None:
    caller = agent({"KEY": "hidden"})
    reached = await reach(services, token("{{ KEY }}"), caller)

    assert "hidden" in str(reached.headers)
    assert (
        "hidden" not in f"{reached!r}{caller!r}{server(secrets=McpSecrets(auth_token='hidden'))!r}"
    )


async def test_a_login_gives_the_token(services: Services, logins: Logins) -> None:
    logins.tokens = ["from-login"]

    reached = await reach(services, server())

    assert reached.headers == (("Authorization", "Bearer from-login"),)
    assert reached.user_id == DEFAULT_USER_ID
    assert logins.asked == [(DEFAULT_ORGANIZATION_ID, DEFAULT_USER_ID, URL, False)]


@pytest.mark.parametrize(
    ("url", "is_sent"),
    [
        ("https://mcp.example/mcp", True),
        ("http://mcp.example/mcp", False),
        ("http://127.0.0.1:8000/mcp", True),
        ("http://tools.internal/mcp", True),
    ],
)
async def test_the_token_of_a_login_goes_over_tls_or_to_hosts_of_the_operator(
    services: Services, logins: Logins, url: str, is_sent: bool
) -> None:
    logins.tokens = ["from-login"]
    allowed = parse_allowed(["127.0.0.0/8", "tools.internal"])
    given = replace(services, outgoing=GuardedOutgoing(allowed))

    reached = await reach(given, server(server_url=url))

    assert ("from-login" in str(reached.headers)) is is_sent
    mcp = ScriptedMcp()
    mcp.failures.append(McpUnauthorized("weather"))
    with pytest.raises(McpUnauthorized):
        await use(given, server(server_url=url), CALLER, mcp.list_tools)
    assert ("from-login" in str(mcp.listed[-1].headers)) is is_sent


@pytest.mark.parametrize(
    "secrets",
    [
        McpSecrets(auth_token="abc"),
        McpSecrets(custom_headers={"authorization": "Basic abc"}),
    ],
)
async def test_the_servers_own_token_goes_before_a_login(
    services: Services, logins: Logins, secrets: McpSecrets
) -> None:
    logins.tokens = ["from-login"]

    reached = await reach(services, server(secrets=secrets))

    assert "from-login" not in str(reached.headers)
    # So users share the connection.
    assert reached.user_id is None
    assert logins.asked == []


async def test_a_token_that_is_no_longer_accepted_is_renewed_once(
    services: Services, logins: Logins
) -> None:
    logins.tokens = ["old", "new"]
    mcp = ScriptedMcp()
    mcp.failures.append(McpUnauthorized("weather"))

    await use(services, server(), CALLER, mcp.list_tools)

    assert [dict(endpoint.headers)["Authorization"] for endpoint in mcp.listed] == [
        "Bearer old",
        "Bearer new",
    ]
    assert [renew for *_, renew in logins.asked] == [False, True]

    logins.asked.clear()
    mcp.failures += [McpUnauthorized("weather"), McpUnauthorized("weather")]
    with pytest.raises(McpUnauthorized):
        await use(services, server(), CALLER, mcp.list_tools)
    assert len(logins.asked) == 2


@pytest.mark.parametrize("tokens", [[], ["old", None], ["old", "old"]])
async def test_without_another_token_the_refusal_is_the_callers(
    services: Services, logins: Logins, tokens: list[str | None]
) -> None:
    logins.tokens = tokens
    mcp = ScriptedMcp()
    mcp.failures.append(McpUnauthorized("weather"))

    with pytest.raises(McpUnauthorized):
        await use(services, server(), CALLER, mcp.list_tools)
    assert len(mcp.listed) == 1


async def test_other_failures_are_not_tried_again(services: Services, logins: Logins) -> None:
    logins.tokens = ["old", "new"]
    mcp = ScriptedMcp()
    mcp.failures.append(McpUnavailable("weather", "no route"))

    with pytest.raises(McpUnavailable):
        await use(services, server(), CALLER, mcp.list_tools)
    assert len(mcp.listed) == 1


async def test_a_program_gets_its_environment_and_nothing_else(
    services: Services, logins: Logins
) -> None:
    stored = server(
        transport=Transport.STDIO,
        server_url=None,
        command="{{ KEY }}",
        args=("{{ KEY }}", "a b"),
        secrets=McpSecrets(env={"A": "{{ KEY }}", "B": ' "kept" '}),
    )
    with pytest.raises(InvalidArgument, match="MCP_DISABLE_STDIO=false"):
        build_endpoint(services, stored, CALLER, None)

    allowed = replace(services, mcp_options=McpOptions(stdio_over_api=True))
    reached = await reach(allowed, stored, agent({"KEY": "abc"}))

    assert (reached.command, reached.args) == ("{{ KEY }}", ("{{ KEY }}", "a b"))
    assert reached.env == (("A", "abc"), ("B", ' "kept" '))
    assert reached.headers == ()
    assert not reached.is_trusted
    assert logins.asked == []


async def test_a_server_of_the_operators_file_is_reached_as_the_file_says(
    services: Services, logins: Logins
) -> None:
    logins.tokens = ["from-login"]
    configured = {
        "files": ConfiguredServer(name="files", command="run", args=("a",), env={"A": "{{ KEY }}"}),
        "search": ConfiguredServer(
            name="search", url="http://127.0.0.1:9/mcp", headers={"X-A": "{{ KEY }}"}
        ),
        "own": ConfiguredServer(
            name="own", url="http://127.0.0.1:9/mcp", headers={"Authorization": "Basic a"}
        ),
    }
    given = replace(services, mcp_options=McpOptions(configured=configured))

    def row(name: str) -> McpServer:
        return server(name=name, is_configured=True, server_url=None)

    files = await reach(given, row("files"), agent({"KEY": "abc"}))
    search = await reach(given, row("search"), agent({"KEY": "abc"}))
    own = await reach(given, row("own"))

    assert files.transport is Transport.STDIO
    assert (files.command, files.args, files.env) == ("run", ("a",), (("A", "abc"),))
    assert search.url == "http://127.0.0.1:9/mcp"
    assert search.headers == (
        ("Authorization", "Bearer from-login"),
        ("X-A", "abc"),
        ("X-Agent-Id", AGENT),
    )
    assert own.headers == (("Authorization", "Basic a"),)
    assert (search.user_id, own.user_id, files.user_id) == (DEFAULT_USER_ID, None, None)
    assert files.is_trusted
    assert search.is_trusted
    with pytest.raises(McpUnavailable, match="no longer in the operator's file"):
        await reach(given, row("gone"))
