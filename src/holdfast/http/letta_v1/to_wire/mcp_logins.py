"""Connecting to an MCP server, and logins."""

from typing import Final

from holdfast.core.ids import Kind
from holdfast.core.mcp_sessions import McpSession
from holdfast.http.letta_v1.schemas import mcp_logins as wire
from holdfast.usecases.mcp_connect import (
    Connected,
    ConnectFailed,
    Connecting,
    LoginAwaited,
    LoginBegun,
    LoginNeeded,
    Step,
)
from holdfast.usecases.mcp_logins import LoginResult

# tools-v1 §1.9: mcp-oauth- and eight digits. Nothing is found by it.
_SESSION_ID_CHARACTERS: Final = len(Kind.MCP_SESSION) + 1 + 8

SUCCESS: Final = "Authorization successful"


def connect_event(step: Step) -> wire.ConnectEvent:
    match step:
        case Connecting():
            return wire.ConnectionAttempt(server_name=step.server_name)
        case Connected():
            return wire.ConnectSuccess(tools=[tool.listing for tool in step.tools])
        case ConnectFailed():
            return wire.ConnectError(message=step.message)
        case LoginNeeded():
            return wire.OAuthRequired()
        case LoginBegun():
            shown = step.session_id[:_SESSION_ID_CHARACTERS]
            return wire.AuthorizationUrl(url=step.url, session_id=shown)
        case LoginAwaited():
            return wire.WaitingForAuth()


def callback_answer(result: LoginResult) -> wire.CallbackAnswer:
    if result.failure is not None:
        return wire.CallbackAnswer(status="error", message=result.failure)
    return wire.CallbackAnswer(
        status="success", message=SUCCESS, server_url=result.server_url or ""
    )


def login_state(session: McpSession | None) -> wire.McpLogin:
    if session is None:
        return wire.McpLogin(status="none")
    return wire.McpLogin(
        status=session.status.value,
        scope=session.scope,
        expires_at=session.expires_at,
        updated_at=session.updated_at,
        failure=session.failure,
    )
