"""Logging in to MCP servers: each step against a real authorization server, and what hostile ones try."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from msgspec.structs import replace
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import Receive, Scope, Send
from tests.support.authorization_server import METADATA, RESOURCE_METADATA, AuthorizationServer
from tests.support.mcp_server import McpTestServer

from holdfast.adapters.mcp import oauth_requests
from holdfast.adapters.mcp.authorization import SdkMcpAuthorization
from holdfast.core.addresses import AllowedAddresses, parse_allowed
from holdfast.core.mcp_sessions import McpSession, SessionSecrets, SessionStatus
from holdfast.errors import AddressForbidden, HoldfastError, LoginFailed, LoginRefused
from holdfast.ports.mcp_authorization import AuthorizationRequest, LoginTarget, OAuthClient, Tokens

CALLBACK = "http://127.0.0.1:8283/v1/tools/mcp/oauth/callback"
SOME_TIME = datetime(2026, 1, 1, tzinfo=UTC)
METHODS = ("none", "client_secret_post", "client_secret_basic")


@pytest.fixture
async def server() -> AsyncIterator[McpTestServer]:
    async with McpTestServer() as server:
        yield server


@pytest.fixture
def site(server: McpTestServer) -> AuthorizationServer:
    return AuthorizationServer(server)


@pytest.fixture
def login() -> SdkMcpAuthorization:
    return SdkMcpAuthorization(parse_allowed(["127.0.0.1"]))


def target(site: AuthorizationServer, **fields: Any) -> LoginTarget:
    document = f"{site.server.origin}{RESOURCE_METADATA}"
    given = {
        "server_url": site.server.url,
        "redirect_uri": CALLBACK,
        "challenge": f'Bearer resource_metadata="{document}"',
    }
    return LoginTarget(**given | fields)


def session_of(site: AuthorizationServer, request: AuthorizationRequest) -> McpSession:
    return McpSession(
        id="mcp-oauth-1",
        organization_id="org-1",
        user_id="user-1",
        server_url=site.server.url,
        status=SessionStatus.PENDING,
        created_at=SOME_TIME,
        updated_at=SOME_TIME,
        secrets=SessionSecrets(
            code_verifier=request.code_verifier, client_secret=request.client_secret
        ),
        token_endpoint=request.token_endpoint,
        client_auth_method=request.client_auth_method,
        issuer=request.issuer,
        resource=request.resource,
        client_id=request.client_id,
        redirect_uri=request.redirect_uri,
        must_name_issuer=request.must_name_issuer,
    )


def with_refresh_token(session: McpSession, tokens: Tokens) -> McpSession:
    secrets = SessionSecrets(
        client_secret=session.secrets.client_secret, refresh_token=tokens.refresh_token
    )
    return replace(session, secrets=secrets)


def code_of(callback_url: str) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(callback_url).query))


class LateRedirect(RedirectResponse):
    """Sends away after a while, unless the client goes by itself."""

    def __init__(self, url: str, *, seconds: float) -> None:
        super().__init__(url, 307)
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._seconds):
                await receive()
        await super().__call__(scope, receive, send)


async def log_in(
    login: SdkMcpAuthorization, site: AuthorizationServer, **fields: Any
) -> tuple[McpSession, Tokens]:
    request = await login.begin(target(site, **fields))
    session = session_of(site, request)
    came_back = code_of(site.approve(request.url))
    assert came_back["state"] == request.state
    return session, await login.exchange(session, came_back["code"], came_back.get("iss"))


@pytest.mark.parametrize("method", METHODS)
async def test_a_user_logs_in_and_the_login_is_renewed(
    login: SdkMcpAuthorization, site: AuthorizationServer, method: str
) -> None:
    site.method = method

    session, tokens = await log_in(login, site)

    assert tokens.access_token in site.access_tokens
    assert (tokens.scope, tokens.seconds) == ("tools:read", 3600)
    renewed = await login.refresh(with_refresh_token(session, tokens))
    assert renewed.access_token in site.access_tokens
    assert renewed.refresh_token != tokens.refresh_token
    asked = site.authorize_requests[0]
    assert asked["resource"] == site.server.url
    assert asked["scope"] == "tools:read"
    assert {form["resource"] for form in site.token_requests} == {site.server.url}
    (client,) = site.clients.values()
    assert client.fields["client_name"] == "Holdfast"
    assert client.fields["redirect_uris"] == [CALLBACK]
    assert client.fields["application_type"] == "native"


async def test_a_client_that_was_registered_by_hand_is_used(
    login: SdkMcpAuthorization, site: AuthorizationServer
) -> None:
    registered = await login.begin(target(site))
    site.metadata = {"registration_endpoint": None}
    client = OAuthClient(client_id=registered.client_id)

    _, tokens = await log_in(login, site, client=client)

    assert tokens.access_token in site.access_tokens
    with pytest.raises(LoginFailed, match="lets no client register itself"):
        await login.begin(target(site))


async def test_a_server_from_before_metadata_is_its_own_authorization_server(
    login: SdkMcpAuthorization, site: AuthorizationServer
) -> None:
    for path in (RESOURCE_METADATA, METADATA):
        site.answers[path] = PlainTextResponse("not here", 404)
    site.names_issuer = False

    _, tokens = await log_in(login, site, challenge="")

    assert tokens.access_token in site.access_tokens
    assert "resource" not in site.authorize_requests[0]
    assert "resource" not in site.token_requests[0]


async def test_what_the_user_has_allowed_before_is_asked_for_again_if_more_is_needed(
    login: SdkMcpAuthorization, site: AuthorizationServer
) -> None:
    challenge = f'{target(site).challenge}, error="insufficient_scope", scope="tools:write"'

    request = await login.begin(target(site, challenge=challenge, earlier_scope="tools:read files"))

    assert request.scope == "tools:read files tools:write"


async def test_a_code_works_once(login: SdkMcpAuthorization, site: AuthorizationServer) -> None:
    request = await login.begin(target(site))
    session = session_of(site, request)
    code = code_of(site.approve(request.url))["code"]
    await login.exchange(session, code, site.issuer)

    with pytest.raises(LoginFailed, match="HTTP 400, invalid_grant") as failed:
        await login.exchange(session, code, site.issuer)

    # The server has quoted what it was sent.
    assert not any(secret in str(failed.value) for secret in site.secrets)


async def test_another_login_cannot_use_the_code(
    login: SdkMcpAuthorization, site: AuthorizationServer
) -> None:
    mine, other = await login.begin(target(site)), await login.begin(target(site))
    code = code_of(site.approve(mine.url))["code"]

    with pytest.raises(LoginFailed, match="invalid_grant"):
        await login.exchange(session_of(site, other), code, site.issuer)


@pytest.mark.parametrize("named", ["https://elsewhere.example", None])
async def test_a_callback_of_another_authorization_server_is_refused(
    login: SdkMcpAuthorization, site: AuthorizationServer, named: str | None
) -> None:
    request = await login.begin(target(site))
    code = code_of(site.approve(request.url))["code"]

    with pytest.raises(LoginFailed, match="The callback"):
        await login.exchange(session_of(site, request), code, named)

    assert site.token_requests == []


@pytest.mark.parametrize("error", ["invalid_grant", "invalid_client", "unauthorized_client"])
async def test_a_refresh_token_that_is_refused_ends_the_login(
    login: SdkMcpAuthorization, site: AuthorizationServer, error: str
) -> None:
    session, tokens = await log_in(login, site)
    site.answers["/token"] = JSONResponse({"error": error}, 400)

    with pytest.raises(LoginRefused, match=error):
        await login.refresh(with_refresh_token(session, tokens))


@pytest.mark.parametrize(
    "answer",
    [
        JSONResponse({"error": "temporarily_unavailable"}, 503),
        JSONResponse({"error": "slow_down"}, 429),
        PlainTextResponse("<html>", 200),
        JSONResponse({"access_token": "a b", "token_type": "Bearer"}),
        JSONResponse({"access_token": "a\r\nx: y", "token_type": "Bearer"}),
        JSONResponse({"access_token": "abc", "token_type": "DPoP"}),
        JSONResponse({"access_token": "", "token_type": "Bearer"}),
        JSONResponse(["no"]),
        PlainTextResponse("x" * 1_000_000),
    ],
)
async def test_an_answer_that_cannot_be_used_does_not_end_the_login(
    login: SdkMcpAuthorization, site: AuthorizationServer, answer: Response
) -> None:
    session, tokens = await log_in(login, site)
    site.answers["/token"] = answer

    with pytest.raises(LoginFailed) as failed:
        await login.refresh(with_refresh_token(session, tokens))

    assert not isinstance(failed.value, LoginRefused)


async def test_a_hostile_answer_is_not_quoted(
    login: SdkMcpAuthorization, site: AuthorizationServer
) -> None:
    session, tokens = await log_in(login, site)
    stolen = tokens.refresh_token or ""
    answer = {"error": stolen, "error_description": stolen, "access_token": 5, "x": stolen}

    for status in (200, 400):
        site.answers["/token"] = JSONResponse(answer, status)
        with pytest.raises(LoginFailed) as failed:
            await login.refresh(with_refresh_token(session, tokens))
        assert stolen not in repr(failed.value)
        # Nor when it is logged with its causes.
        assert failed.value.__cause__ is None
        assert failed.value.__suppress_context__ or failed.value.__context__ is None


@pytest.mark.parametrize("seconds", [10**30, -5, 0])
async def test_a_strange_lifetime_is_bounded(
    login: SdkMcpAuthorization, site: AuthorizationServer, seconds: int
) -> None:
    site.expires_in = seconds

    _, tokens = await log_in(login, site)

    assert tokens.seconds is not None
    assert 0 <= tokens.seconds <= 10 * 365 * 86_400


async def fails_to_begin(login: SdkMcpAuthorization, begin: LoginTarget) -> HoldfastError:
    with pytest.raises((LoginFailed, AddressForbidden)) as failed:
        await login.begin(begin)
    return failed.value


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"issuer": "https://elsewhere.example"}, "are those of another one"),
        ({"code_challenge_methods_supported": None}, "PKCE"),
        ({"code_challenge_methods_supported": ["plain"]}, "PKCE"),
        ({"registration_endpoint": "http://10.0.0.7/register"}, "10.0.0.7 is not a public"),
        ({"registration_endpoint": "http://169.254.169.254/r"}, "is not a public address"),
        ({"registration_endpoint": "http://public.example/register"}, "a login needs https"),
        ({"token_endpoint": "not a url"}, "no metadata that can be used"),
        ({"authorization_endpoint": "javascript:alert(1)"}, "no metadata that can be used"),
        ({"authorization_endpoint": "file:///etc/passwd"}, "no metadata that can be used"),
    ],
)
async def test_metadata_that_cannot_be_trusted_are_refused(
    login: SdkMcpAuthorization, site: AuthorizationServer, fields: dict[str, Any], why: str
) -> None:
    site.metadata = fields

    assert why in str(await fails_to_begin(login, target(site)))


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"resource": "https://elsewhere.example/mcp"}, "says that it is another one"),
        ({"authorization_servers": ["http://10.0.0.7"]}, "10.0.0.7 is not a public address"),
        ({"authorization_servers": ["http://[::1]:1"]}, "::1 is not a public address"),
    ],
)
async def test_a_server_that_sends_its_users_elsewhere_is_refused(
    login: SdkMcpAuthorization, site: AuthorizationServer, fields: dict[str, Any], why: str
) -> None:
    site.resource_metadata = fields

    assert why in str(await fails_to_begin(login, target(site)))


@pytest.mark.parametrize(
    ("metadata", "resource", "why"),
    [
        ({}, {"resource": "https://elsewhere.example/swordfish"}, "says that it is another one"),
        ({"issuer": "https://elsewhere.example/swordfish"}, {}, "are those of another one"),
        ({"code_challenge_methods_supported": None}, {}, "PKCE"),
        ({"registration_endpoint": None}, {}, "lets no client register itself"),
    ],
)
async def test_a_secret_address_of_the_operator_is_in_no_text(
    site: AuthorizationServer, metadata: dict[str, Any], resource: dict[str, Any], why: str
) -> None:
    url = f"{site.server.origin}/s/swordfish/mcp"
    issuer = f"{site.server.origin}/s/swordfish"
    site.resource_metadata = {"resource": url, "authorization_servers": [issuer]} | resource
    document = {"issuer": issuer} | metadata
    site.metadata = document
    strict = SdkMcpAuthorization(AllowedAddresses())
    begun = target(site, server_url=url, is_trusted=True)

    # Where the metadata of an issuer with a path are.
    site.aliases[f"{METADATA}/s/swordfish"] = METADATA
    text = str(await fails_to_begin(strict, begun))

    assert why in text
    assert "swordfish" not in text


async def test_a_server_that_cannot_say_who_gives_access_is_named_without_its_key(
    site: AuthorizationServer,
) -> None:
    site.answers[RESOURCE_METADATA] = PlainTextResponse("no", 500)
    strict = SdkMcpAuthorization(AllowedAddresses())
    url = f"{site.server.origin}/s/swordfish/mcp"

    text = str(await fails_to_begin(strict, target(site, server_url=url, is_trusted=True)))

    assert "could not say who gives access to it (HTTP 500)" in text
    assert "swordfish" not in text


async def test_a_document_at_a_private_address_is_not_asked_for(
    login: SdkMcpAuthorization, site: AuthorizationServer
) -> None:
    challenge = 'Bearer resource_metadata="http://192.168.1.1/admin"'

    error = await fails_to_begin(login, target(site, challenge=challenge))

    assert "192.168.1.1 is not a public address" in str(error)
    assert "HOLDFAST_ALLOWED_PRIVATE_HOSTS" in str(error)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirects_are_followed_within_the_origin_only(
    login: SdkMcpAuthorization, site: AuthorizationServer, status: int
) -> None:
    document = {"resource": site.server.url, "authorization_servers": [site.issuer]}
    site.answers["/moved"] = JSONResponse(document)
    site.answers[RESOURCE_METADATA] = RedirectResponse("/moved", status)
    assert (await login.begin(target(site))).resource == site.server.url

    site.answers[RESOURCE_METADATA] = RedirectResponse("http://10.0.0.7/", status)
    assert "10.0.0.7 is not a public" in str(await fails_to_begin(login, target(site)))

    # A port of the same host is another origin: it is not asked, and older ways are tried.
    site.answers[RESOURCE_METADATA] = RedirectResponse("http://127.0.0.1:1/", status)
    assert (await login.begin(target(site))).resource is None

    site.answers[RESOURCE_METADATA] = RedirectResponse(RESOURCE_METADATA, status)
    assert "redirects too often" in str(await fails_to_begin(login, target(site)))


async def test_secrets_do_not_follow_a_redirect_to_another_host(
    login: SdkMcpAuthorization, site: AuthorizationServer
) -> None:
    session, tokens = await log_in(login, site)
    site.answers["/token"] = RedirectResponse("https://elsewhere.example/token", 307)

    with pytest.raises(LoginFailed, match="HTTP 307"):
        await login.refresh(with_refresh_token(session, tokens))


async def test_a_request_and_its_redirects_have_one_time_limit(
    login: SdkMcpAuthorization, site: AuthorizationServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A renewal must end before its lock does."""
    session, tokens = await log_in(login, site)
    monkeypatch.setattr(oauth_requests, "TIMEOUT_SECONDS", 0.5)
    site.answers["/token"] = LateRedirect("/token", seconds=0.4)

    with pytest.raises(LoginFailed, match=r"gave no answer within 0\.5 s"):
        await login.refresh(with_refresh_token(session, tokens))


@pytest.mark.parametrize(
    "answer",
    [
        PlainTextResponse("x" * 1_000_000),
        PlainTextResponse("no", 500),
        JSONResponse({}, 429),
        PlainTextResponse("[" * 100_000),
    ],
)
async def test_documents_that_cannot_be_read_end_the_login(
    login: SdkMcpAuthorization, site: AuthorizationServer, answer: Response
) -> None:
    site.answers[METADATA] = answer
    assert await fails_to_begin(login, target(site))


async def test_a_registration_that_cannot_be_used_is_refused_without_its_text(
    login: SdkMcpAuthorization, site: AuthorizationServer
) -> None:
    for answer in (
        JSONResponse({"client_secret": "secret-of-the-client"}, 201),
        JSONResponse({"error": "secret-of-the-client"}, 400),
        JSONResponse(
            {"client_id": "secret-of-the-client", "token_endpoint_auth_method": "private_key_jwt"}
        ),
    ):
        site.answers["/register"] = answer
        error = await fails_to_begin(login, target(site))
        assert "did not register this client" in str(error)
        assert "secret-of-the-client" not in str(error)


async def test_without_permission_no_private_server_is_asked(site: AuthorizationServer) -> None:
    strict = SdkMcpAuthorization(AllowedAddresses())

    assert isinstance(await fails_to_begin(strict, target(site)), AddressForbidden)
    assert site.document_requests == []


async def test_the_host_of_an_operators_server_is_trusted_and_no_other(
    site: AuthorizationServer,
) -> None:
    def resolve(host: str, port: int) -> Sequence[str]:
        return ["127.0.0.1"]

    strict = SdkMcpAuthorization(AllowedAddresses(), resolve)
    assert (await strict.begin(target(site, is_trusted=True))).resource == site.server.url

    site.metadata = {"registration_endpoint": f"http://inside.example:{site.server.port}/register"}
    error = await fails_to_begin(strict, target(site, is_trusted=True))

    assert "inside.example" in str(error)
    assert site.clients == {} or len(site.clients) == 1


async def test_tokens_go_to_public_hosts_over_tls_only(
    login: SdkMcpAuthorization, site: AuthorizationServer
) -> None:
    session = session_of(site, await login.begin(target(site)))
    plain = "http://public.example/token"
    site.metadata = {"token_endpoint": plain}

    assert "a login needs https" in str(await fails_to_begin(login, target(site)))
    with pytest.raises(AddressForbidden, match="a login needs https"):
        await login.exchange(replace(session, token_endpoint=plain), "code", site.issuer)


async def test_no_login_begins_where_its_token_would_be_sent_without_tls(
    login: SdkMcpAuthorization, site: AuthorizationServer
) -> None:
    plain = target(site, server_url="http://public.example/mcp")
    assert "a login needs https" in str(await fails_to_begin(login, plain))
    assert site.document_requests == []

    site.metadata = {"authorization_endpoint": "http://public.example/authorize"}
    assert "a login needs https" in str(await fails_to_begin(login, target(site)))
    assert site.clients == {}


def test_secrets_are_not_shown_by_mistake() -> None:
    tokens = Tokens(access_token="secret", refresh_token="secret")
    client = OAuthClient(client_id="me", client_secret="secret")
    request = AuthorizationRequest(
        url="secret",
        redirect_uri=CALLBACK,
        state="secret",
        code_verifier="secret",
        token_endpoint="",
        client_id="",
    )
    for value in (tokens, client, request, {"all": [tokens, client, request]}):
        assert "secret" not in repr(value)
        assert "secret" not in json.dumps(repr(value))


def test_a_server_where_nobody_logs_in_does_not_load_the_sdk() -> None:
    program = (
        "import sys, holdfast.assembly.server\n"
        "from holdfast.adapters.mcp.authorization import SdkMcpAuthorization\n"
        "from holdfast.core.addresses import AllowedAddresses\n"
        "SdkMcpAuthorization(AllowedAddresses())\n"
        "assert not {'mcp', 'httpx2', 'httpcore2'} & set(sys.modules), sorted(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
