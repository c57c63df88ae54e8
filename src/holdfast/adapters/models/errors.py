"""What can go wrong at a provider, and what we call it. One table; the provider's words are kept."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import httpx2
import msgspec
from pydantic_ai import exceptions as theirs

from holdfast import errors

# By class, most special first: the first that fits is taken.
_BY_CLASS: tuple[tuple[type[BaseException], type[errors.ModelError]], ...] = (
    (theirs.ModelContextWindowExceededError, errors.ContextWindowExceeded),
    (theirs.ModelAuthenticationError, errors.ModelAuthFailed),
    (theirs.ModelQuotaExceededError, errors.ModelOutOfCredits),
    (theirs.ModelRateLimitError, errors.ModelRateLimited),
    (theirs.ModelUnavailableError, errors.ModelOverloaded),
    (theirs.ModelRequestRejectedError, errors.ModelRejectedRequest),
    (theirs.ModelTimeoutError, errors.ModelTimedOut),
    (theirs.ModelRequestTimeout, errors.ModelTimedOut),
    (httpx2.TimeoutException, errors.ModelTimedOut),
    # pydantic-ai could not even express the request for this model.
    (theirs.UserError, errors.ModelRejectedRequest),
    # Half a character (a lone surrogate) cannot be sent.
    (UnicodeEncodeError, errors.ModelRejectedRequest),
)

# Statuses that pydantic-ai has no class for, or a less telling one.
_BY_STATUS: dict[int, type[errors.ModelError]] = {
    408: errors.ModelTimedOut,
    413: errors.ModelRejectedRequest,
    504: errors.ModelTimedOut,
    529: errors.ModelOverloaded,
}

# How providers word an overflow that they report as a plain bad request.
_OVERFLOW = re.compile(
    r"context.?(length|window|limit|size)|prompt is too long|input is too long|too many tokens",
    re.IGNORECASE,
)

_FAILURES = (
    theirs.AgentRunError,
    theirs.UserError,
    httpx2.HTTPError,
    msgspec.DecodeError,
    UnicodeEncodeError,
)

_LOOKS_LIKE_A_KEY = re.compile(r"\bsk-[\w-]{8,}")
_HIDDEN = "[key hidden]"


@contextmanager
def translation(secrets: tuple[str, ...]) -> Iterator[None]:
    """Turn a provider's failure into a ModelError; ``secrets`` never show in its text."""
    try:
        yield
    except _FAILURES as error:
        raise model_error(error, secrets) from error


def model_error(error: BaseException, secrets: tuple[str, ...] = ()) -> errors.ModelError:
    words = _provider_words(error)
    kind = _kind(error)
    if kind is errors.ModelRejectedRequest and _OVERFLOW.search(words):
        kind = errors.ContextWindowExceeded
    return kind(_without_secrets(words, secrets))


def _kind(error: BaseException) -> type[errors.ModelError]:
    if isinstance(error, theirs.ModelHTTPError) and error.status_code in _BY_STATUS:
        return _BY_STATUS[error.status_code]
    for theirs_, ours in _BY_CLASS:
        if isinstance(error, theirs_):
            return ours
    return errors.ModelError


def _provider_words(error: BaseException) -> str:
    body = error.body if isinstance(error, theirs.ModelAPIError) else None
    message = _message_in(body)
    if message:
        return message
    told = str(error) or type(error).__name__
    cause = str(error.__cause__ or "")
    return f"{told} ({cause})" if cause and cause not in told else told


def _message_in(body: object) -> str:
    """The message of an error body: ``{"message": …}``, also inside ``{"error": …}``."""
    match body:
        case {"error": dict() as inner}:
            return _message_in(inner)
        case {"message": str() as message}:
            return message
        case str():
            return body
        case _:
            return ""


def _without_secrets(text: str, secrets: tuple[str, ...]) -> str:
    for secret in secrets:
        text = text.replace(secret, _HIDDEN)
    return _LOOKS_LIKE_A_KEY.sub(_HIDDEN, text)
