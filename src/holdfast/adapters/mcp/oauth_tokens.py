"""The answers of token endpoints. They have secrets in them, and may have any text: no error quotes one."""

import re
from typing import Any, Final

import msgspec
from mcp.shared.auth import OAuthToken
from pydantic import ValidationError

from holdfast.errors import LoginFailed, LoginRefused
from holdfast.ports.mcp_authorization import Tokens
from holdfast.ports.outgoing import OutgoingResponse

# What a header can carry.
_TOKEN: Final = re.compile(r"[!-~]{1,16384}")
_LONGEST_SECONDS: Final = 10 * 365 * 86_400
# RFC 6749 §5.2. Only these words of an answer are shown.
_ERRORS: Final = frozenset(
    {
        "invalid_request",
        "invalid_client",
        "invalid_grant",
        "unauthorized_client",
        "unsupported_grant_type",
        "invalid_scope",
        "invalid_target",
    }
)
# With these no later attempt can succeed.
_FINAL: Final = frozenset({"invalid_grant", "invalid_client", "unauthorized_client"})


def read_tokens(response: OutgoingResponse) -> Tokens:
    if response.status not in (200, 201):
        raise LoginFailed(f"The authorization server gave no tokens: {_describe(response)}.")
    try:
        token = OAuthToken.model_validate_json(response.body)
    except ValidationError:
        # Not with its text, which quotes the answer.
        raise LoginFailed("The authorization server gave no tokens that can be used.") from None
    given = (token.access_token, token.refresh_token)
    if not all(text is None or _TOKEN.fullmatch(text) for text in given):
        raise LoginFailed("The authorization server gave tokens that no header can carry.")
    seconds = token.expires_in
    return Tokens(
        access_token=token.access_token,
        refresh_token=token.refresh_token,
        scope=token.scope,
        seconds=None if seconds is None else max(0, min(seconds, _LONGEST_SECONDS)),
    )


def check_refused(response: OutgoingResponse) -> None:
    """Raise LoginRefused if no refresh with this token can succeed any more."""
    if 400 <= response.status < 500 and _find_error(response) in _FINAL:
        raise LoginRefused(
            f"The authorization server no longer accepts the login: {_describe(response)}."
        )


def _describe(response: OutgoingResponse) -> str:
    error = _find_error(response)
    return f"HTTP {response.status}" + (f", {error}" if error in _ERRORS else "")


def _find_error(response: OutgoingResponse) -> str | None:
    try:
        fields: Any = msgspec.json.decode(response.body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    error = fields.get("error") if isinstance(fields, dict) else None
    return error if isinstance(error, str) else None
