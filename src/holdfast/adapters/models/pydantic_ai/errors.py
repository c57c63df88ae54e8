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

_FAILURES: tuple[type[Exception], ...] = (
    theirs.AgentRunError,
    theirs.UserError,
    httpx2.HTTPError,
    msgspec.DecodeError,
    UnicodeEncodeError,
)

# What the SDKs trip over when an answer has not the shape that they expect.
_MALFORMED_ANSWER_ERRORS = (AttributeError, LookupError, TypeError, ValueError, AssertionError)

# What was refused stays refused; whatever else went wrong may go well the next time.
_PERMANENT = (
    theirs.ModelRequestRejectedError,
    theirs.ModelQuotaExceededError,
    theirs.ContentFilterError,
    theirs.UserError,
)
# 424 is Bedrock's name for a model that broke off in mid-answer.
_TRANSIENT_STATUSES = frozenset({408, 409, 424, 429})

# OpenAI's, Anthropic's and Google's keys, and whatever is sent as a bearer token.
_KEY_PATTERN = re.compile(r"\bsk-[\w-]{8,}|\bAIza[\w-]{16,}|(?<=Bearer )[\w.~+/=-]{8,}")
# A provider's words are kept with the run, the step and each attempt; some answer with a whole page.
_MAX_MESSAGE_CHARS = 4_000
_HIDDEN = "[key hidden]"


class SdkFailures(msgspec.Struct, frozen=True):
    """What an SDK raises that pydantic-ai leaves as it is; and of that, what may be over a moment later."""

    kinds: tuple[type[Exception], ...] = ()
    transient: tuple[type[Exception], ...] = ()


NO_SDK_FAILURES = SdkFailures()


@contextmanager
def translate_errors(
    secrets: tuple[str, ...], sdk_failures: SdkFailures = NO_SDK_FAILURES, *, reading: bool = False
) -> Iterator[None]:
    """Turn a provider's failure into a ModelError; ``secrets`` never show in its text.

    While an answer is read, whatever the SDKs trip over is the provider's failure too. The original is not handed on:
    a log that shows it would show the provider's words as they came.
    """
    try:
        yield
    except _FAILURES as error:
        raise to_model_error(error, secrets, transient=_is_transient(error)) from None
    except sdk_failures.kinds as error:
        # Google's say so themselves.
        passing = isinstance(error, sdk_failures.transient) or getattr(error, "retryable", False)
        raise to_model_error(error, secrets, transient=passing) from None
    except _MALFORMED_ANSWER_ERRORS as error:
        if not reading:
            raise
        raise to_model_error(error, secrets, transient=True) from None


def to_model_error(
    error: BaseException, secrets: tuple[str, ...], *, transient: bool
) -> errors.ModelError:
    words = _provider_message(error)
    kind = _error_class(error)
    if kind is errors.ModelRejectedRequest and _OVERFLOW.search(words):
        kind = errors.ContextWindowExceeded
    return kind(
        _truncate(_without_secrets(words, secrets)),
        transient=transient,
        retry_after_seconds=getattr(error, "retry_after", None),
    )


def _is_transient(error: BaseException) -> bool:
    if isinstance(error, _PERMANENT):
        return False
    if isinstance(error, theirs.ModelHTTPError):
        return error.status_code in _TRANSIENT_STATUSES or error.status_code >= 500
    return not isinstance(error, UnicodeEncodeError)


def _error_class(error: BaseException) -> type[errors.ModelError]:
    if isinstance(error, theirs.ModelHTTPError) and error.status_code in _BY_STATUS:
        return _BY_STATUS[error.status_code]
    for theirs_, ours in _BY_CLASS:
        if isinstance(error, theirs_):
            return ours
    return errors.ModelError


def _provider_message(error: BaseException) -> str:
    body = error.body if isinstance(error, theirs.ModelAPIError) else None
    message = _find_message(body)
    if message:
        return message
    told = str(error) or type(error).__name__
    if isinstance(error, _MALFORMED_ANSWER_ERRORS) and not isinstance(error, _FAILURES):
        return f"The provider's answer could not be read ({type(error).__name__}: {told})."
    cause = str(error.__cause__ or "")
    return f"{told} ({cause})" if cause and cause not in told else told


def _find_message(body: object) -> str:
    """The message of an error body: ``{"message": …}``, also inside ``{"error": …}``."""
    match body:
        case {"error": dict() as inner}:
            return _find_message(inner)
        case {"message": str() as message}:
            return message
        case str():
            return body
        case _:
            return ""


def _truncate(words: str) -> str:
    return words if len(words) <= _MAX_MESSAGE_CHARS else f"{words[:_MAX_MESSAGE_CHARS]}…"


def _without_secrets(text: str, secrets: tuple[str, ...]) -> str:
    for secret in secrets:
        text = text.replace(secret, _HIDDEN)
    return _KEY_PATTERN.sub(_HIDDEN, text)
