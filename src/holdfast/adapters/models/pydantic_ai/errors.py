"""Translates failures of providers into ModelErrors, with the provider's own message."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import httpx2
import msgspec
from pydantic_ai import exceptions as theirs

from holdfast import errors

# By class, the most specific first: the first match is used.
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
    # pydantic-ai could not build the request for this model.
    (theirs.UserError, errors.ModelRejectedRequest),
    # A lone surrogate cannot be encoded.
    (UnicodeEncodeError, errors.ModelRejectedRequest),
)

# Statuses for which pydantic-ai has no class, or a less specific one.
_BY_STATUS: dict[int, type[errors.ModelError]] = {
    408: errors.ModelTimedOut,
    413: errors.ModelRejectedRequest,
    504: errors.ModelTimedOut,
    529: errors.ModelOverloaded,
}

# Messages of providers that report a full context window as a bad request.
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

# What the SDKs raise when an answer does not have the shape that they expect.
_MALFORMED_ANSWER_ERRORS = (AttributeError, LookupError, TypeError, ValueError, AssertionError)

# A refused request will be refused again; after any other failure a retry may succeed.
_PERMANENT = (
    theirs.ModelRequestRejectedError,
    theirs.ModelQuotaExceededError,
    theirs.ContentFilterError,
    theirs.UserError,
)
# Bedrock uses 424 for a model that stopped in the middle of an answer.
_TRANSIENT_STATUSES = frozenset({408, 409, 424, 429})

# OpenAI's, Anthropic's and Google's keys, and whatever is sent as a bearer token.
_KEY_PATTERN = re.compile(r"\bsk-[\w-]{8,}|\bAIza[\w-]{16,}|(?<=Bearer )[\w.~+/=-]{8,}")
# A provider's message is stored with the run, the step and each attempt; some providers answer with a whole page.
_MAX_MESSAGE_CHARS = 4_000
_HIDDEN = "[key hidden]"


class SdkFailures(msgspec.Struct, frozen=True):
    """The exceptions of an SDK that pydantic-ai does not translate, and those of them that a retry may cure."""

    kinds: tuple[type[Exception], ...] = ()
    transient: tuple[type[Exception], ...] = ()


NO_SDK_FAILURES = SdkFailures()


@contextmanager
def translate_errors(
    secrets: tuple[str, ...], sdk_failures: SdkFailures = NO_SDK_FAILURES, *, reading: bool = False
) -> Iterator[None]:
    """Turn a provider's failure into a ModelError; ``secrets`` never show in its text.

    While an answer is read (``reading``), every error of the SDKs counts as the provider's failure. The original error
    is not chained: a log that shows it would show secrets in the provider's message.
    """
    try:
        yield
    except _FAILURES as error:
        raise to_model_error(error, secrets, transient=_is_transient(error)) from None
    except sdk_failures.kinds as error:
        # Google's errors have this attribute.
        transient = isinstance(error, sdk_failures.transient) or getattr(error, "retryable", False)
        raise to_model_error(error, secrets, transient=transient) from None
    except _MALFORMED_ANSWER_ERRORS as error:
        if not reading:
            raise
        raise to_model_error(error, secrets, transient=True) from None


def to_model_error(
    error: BaseException, secrets: tuple[str, ...], *, transient: bool
) -> errors.ModelError:
    message = _provider_message(error)
    kind = _error_class(error)
    if kind is errors.ModelRejectedRequest and _OVERFLOW.search(message):
        kind = errors.ContextWindowExceeded
    return kind(
        _truncate(_without_secrets(message, secrets)),
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
    for their_class, our_class in _BY_CLASS:
        if isinstance(error, their_class):
            return our_class
    return errors.ModelError


def _provider_message(error: BaseException) -> str:
    body = error.body if isinstance(error, theirs.ModelAPIError) else None
    message = _find_message(body)
    if message:
        return message
    if connection := _describe_connection_failure(error):
        return connection
    text = str(error) or type(error).__name__
    if isinstance(error, _MALFORMED_ANSWER_ERRORS) and not isinstance(error, _FAILURES):
        return f"The provider's answer could not be read ({type(error).__name__}: {text})."
    cause = str(error.__cause__ or "")
    return f"{text} ({cause})" if cause and cause not in text else text


def _describe_connection_failure(error: BaseException | None) -> str:
    """A sentence with the host, if the HTTP client could not send the request or read the answer."""
    while error is not None and not isinstance(error, httpx2.TransportError):
        error = error.__cause__
    if error is None:
        return ""
    try:
        host = error.request.url.netloc.decode()
    except RuntimeError:
        # The client has not said which request it was.
        return ""
    return f"The connection to {host} failed: {str(error) or type(error).__name__}"


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


def _truncate(text: str) -> str:
    return text if len(text) <= _MAX_MESSAGE_CHARS else f"{text[:_MAX_MESSAGE_CHARS]}…"


def _without_secrets(text: str, secrets: tuple[str, ...]) -> str:
    for secret in secrets:
        text = text.replace(secret, _HIDDEN)
    return _KEY_PATTERN.sub(_HIDDEN, text)
