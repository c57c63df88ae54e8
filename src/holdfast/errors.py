"""Every error raised on purpose, sorted by who must act.

    HoldfastError
    ├── CallerError            the caller sent something that cannot be done (4xx)
    │   ├── InvalidArgument        ├── NotFound ── UnknownModel
    │   ├── AddressForbidden
    │   ├── Unprocessable          ├── MethodRetired
    │   ├── ToolSourceInvalid      ├── TooLarge
    │   ├── AnswerMismatch
    │   ├── Unauthorized           └── Conflict ── PendingApproval, ThreadBusy, AlreadyExists
    ├── ModelError             the provider failed; ends the run with a stop reason
    │   ├── ModelTimedOut  ModelRateLimited  ModelAuthFailed  ModelOutOfCredits
    │   ├── ModelRejectedRequest  ModelOverloaded  ModelAnswerEmpty
    │   └── ContextWindowExceeded  SystemPromptTooLarge
    ├── ToolError              goes back to the model; never ends the run
    ├── DocumentUnreadable     a file has no text that can be extracted; its uploader must act
    ├── BackendError           the operator must act (503)
    │   ├── StoreUnavailable ── DiskFull, OutcomeUnknown, WriteTimedOut
    │   ├── StoreIsNewer  HomeInUse  SecretKeyDiffers  SettingInvalid  CannotStart
    │   └── AnswerUnavailable ── ServerStopping
    ├── Undeliverable          a server that a caller named did not answer
    ├── McpError               an MCP server failed
    │   └── McpUnavailable ── McpUnauthorized ── McpLoginEnded   McpTimedOut  McpCallLost
    ├── LoginFailed            a user could not log in to an MCP server
    │   └── LoginRefused
    ├── LeaseLost              this server must stop its runs; others go on with them
    └── Bug                    we must act
        └── IllegalTransition  StaleRun ── RunFenced

HTTP statuses are in ``http/error_status.py``, by class.
"""

from collections.abc import Sequence


class HoldfastError(Exception):
    """The root: catch it to catch everything that is raised on purpose."""


class CallerError(HoldfastError):
    """The request cannot be carried out as sent; nothing was changed."""


class InvalidArgument(CallerError):
    """A value has the right type but cannot be used."""


class AddressForbidden(CallerError):
    """The server may not connect to a URL that a caller gave."""

    def __init__(self, why: str) -> None:
        super().__init__(f"This address cannot be used: {why}.")

    @classmethod
    def private(cls, host: str) -> "AddressForbidden":
        return cls(
            f"{host} is not a public address, and HOLDFAST_ALLOWED_PRIVATE_HOSTS does not name it"
        )


class Unprocessable(CallerError):
    """The body does not have the form that the operation takes."""


class ToolSourceInvalid(CallerError):
    """A tool's source cannot be used; the message says why and where."""


class Unauthorized(CallerError):
    """The password is missing or wrong."""

    def __init__(self) -> None:
        super().__init__("Unauthorized")


class NotFound(CallerError):
    """The object does not exist, or belongs to another organization."""


class UnknownModel(NotFound):
    """No configured provider offers this handle."""


class MethodRetired(CallerError):
    """An operation of earlier V1 versions that no longer exists."""


class TooLarge(CallerError):
    """The request is larger than the limit that the message names."""


class UnsupportedFileType(CallerError):
    """No text can be extracted from files of this kind."""


class Conflict(CallerError):
    """The state of the object forbids it now. ``run_id``: the run of the message, if it is stored."""

    def __init__(self, text: str, run_id: str | None = None) -> None:
        self.run_id = run_id
        super().__init__(text)


class AlreadyExists(Conflict):
    """A name or label that must be unique is taken."""


class PendingApproval(Conflict):
    """The thread waits for an approval; the message says what to send."""

    def __init__(
        self,
        pending_request_id: str,
        calls: Sequence[tuple[str, str]] = (),
        run_id: str | None = None,
    ) -> None:
        """``calls``: id and tool of each pending call."""
        self.pending_request_id = pending_request_id
        self.calls = tuple(calls)
        super().__init__(
            "Cannot send a new message: The agent is waiting for approval on a tool call. "
            "Please approve or deny the pending request before continuing.",
            run_id,
        )


class AnswerMismatch(CallerError):
    """An answer names other calls than those that are pending; ``calls`` has the id and tool of those."""

    def __init__(
        self, text: str, pending_request_id: str, calls: Sequence[tuple[str, str]]
    ) -> None:
        self.pending_request_id = pending_request_id
        self.calls = tuple(calls)
        super().__init__(text)


class ThreadBusy(Conflict):
    """Another run, ``run_id``, holds the thread and did not finish within the wait."""

    def __init__(self, run_id: str | None) -> None:
        super().__init__(
            f"Cannot send a new message: Another request (run_id={run_id}) is currently being "
            "processed for this conversation. Please wait for it to complete.",
            run_id,
        )


class ModelError(HoldfastError):
    """The provider failed. ``detail`` is the provider's own message.

    ``transient``: the same request may succeed later; not before ``retry_after_seconds``, if the provider said so.
    """

    kind = "llm_error"
    stop_reason = "llm_api_error"
    summary = "An error occurred with the LLM request."

    def __init__(
        self,
        detail: str = "",
        *,
        transient: bool = False,
        retry_after_seconds: float | None = None,
    ) -> None:
        self.detail = detail
        self.transient = transient
        self.retry_after_seconds = retry_after_seconds
        super().__init__(f"{self.summary} {detail}".strip())


class ModelTimedOut(ModelError):
    kind = "llm_timeout"
    summary = "The LLM request timed out. Please try again."


class ModelRateLimited(ModelError):
    kind = "llm_rate_limit"
    summary = (
        "Rate limit exceeded for LLM model provider. Please wait before making another request."
    )


class ModelAuthFailed(ModelError):
    kind = "llm_authentication"
    summary = "Authentication failed with the LLM model provider."


class ModelOutOfCredits(ModelError):
    kind = "llm_insufficient_credits"
    summary = "The LLM model provider says that the account has no credit left."


class ModelRejectedRequest(ModelError):
    kind = "llm_bad_request"
    summary = "The LLM model provider rejected the request."


class ModelOverloaded(ModelError):
    kind = "llm_overloaded"
    summary = "The LLM model provider is overloaded. Please try again."


class ModelAnswerEmpty(ModelError):
    kind = "llm_empty_response"
    stop_reason = "invalid_llm_response"
    summary = "LLM returned an empty response."


class ContextWindowExceeded(ModelError):
    kind = "llm_context_window_exceeded"
    summary = "The conversation does not fit the model's context window."


class SystemPromptTooLarge(ModelError):
    kind = "context_window_overflow_in_system_prompt"
    stop_reason = "context_window_overflow_in_system_prompt"
    summary = (
        "Compaction failed because the system prompt is too large for the model's context window. "
        "Shorten the system prompt or the memory blocks, or raise context_window_limit."
    )


class ToolError(HoldfastError):
    """A tool call failed; the message goes back to the model."""


class DocumentUnreadable(HoldfastError):
    """No text can be extracted from a file. The message is a sentence for the person who uploaded it."""


class BackendError(HoldfastError):
    """Something that the operator is responsible for does not work."""


class StoreUnavailable(BackendError):
    """The database did not answer or refused the connection."""


class WriteTimedOut(StoreUnavailable):
    """A transaction took longer than the operator allows. It was undone."""


class DiskFull(StoreUnavailable):
    """The database cannot write: its disk is full, over its quota or broken. Nothing was stored."""


class OutcomeUnknown(StoreUnavailable):
    """The connection was lost during a commit: the work may have been stored or not."""


class AnswerUnavailable(BackendError):
    """The run ``run_id`` is stored, or may be, and its answer cannot be given. The message must not be sent again."""

    def __init__(self, run_id: str, why: str) -> None:
        self.run_id = run_id
        super().__init__(why)


class StoreIsNewer(BackendError):
    """The store was written by a newer Holdfast; it was not touched."""


class HomeInUse(BackendError):
    """Another server already uses this store."""


class SecretKeyDiffers(BackendError):
    """The store was written with another secret key than this server has; the server did not start."""


class SettingInvalid(BackendError):
    """A setting has a value that cannot be used; the server did not start."""


class CannotStart(BackendError):
    """The server cannot use an address or a folder of its settings, or cannot isolate tools."""


class ServerStopping(AnswerUnavailable):
    """The server stops before the answer is complete. The run goes on when the server is back."""

    def __init__(self, run_id: str) -> None:
        super().__init__(
            run_id,
            f"The server is stopping. The run {run_id} is kept and goes on when the server is back.",
        )


class Undeliverable(HoldfastError):
    """A server that a caller named did not answer; the message says how it failed."""


class McpError(HoldfastError):
    """An MCP server failed. ``server`` is its name."""

    def __init__(self, server: str, why: str) -> None:
        self.server = server
        self.why = why
        super().__init__(f"The MCP server {server} cannot be used: {why}")


class McpUnavailable(McpError):
    """There is no connection to the server, so nothing was asked of it."""


class McpUnauthorized(McpUnavailable):
    """The server wants credentials. ``challenge``: the WWW-Authenticate header that it sent."""

    def __init__(self, server: str, challenge: str = "") -> None:
        self.challenge = challenge
        super().__init__(server, "401 Unauthorized")


class McpLoginEnded(McpUnauthorized):
    """The tokens of the user's login at the server are no longer accepted."""

    def __init__(self, server: str, challenge: str = "") -> None:
        super().__init__(server, challenge)
        self.why = (
            f"The login at the MCP server {server} has ended. "
            f"Log in again: holdfast mcp login {server}."
        )
        self.args = (self.why,)


class McpTimedOut(McpError):
    """The server took too long. ``has_begun``: the call was sent, so it may have had an effect."""

    def __init__(self, server: str, doing: str, seconds: float, *, has_begun: bool = False) -> None:
        self.has_begun = has_begun
        super().__init__(server, "it took too long")
        self.args = (f"Timed out while {doing} for MCP server {server} (timeout={seconds:g}s).",)


class McpCallLost(McpError):
    """The connection was lost while a call ran: it may have had an effect."""


class LoginFailed(HoldfastError):
    """A user could not log in to an MCP server, or the login could not be renewed for now; the message says why."""


class LoginRefused(LoginFailed):
    """The authorization server no longer accepts a login."""


class Bug(HoldfastError):
    """An error in Holdfast itself."""


class IllegalTransition(Bug):
    """A transition of a run that the lifecycle table does not have."""


class StaleRun(Bug):
    """The run was changed by another writer between read and write."""


class StaleFile(HoldfastError):
    """The file was changed by another server that processes it."""


class LeaseLost(HoldfastError):
    """This server may no longer execute its runs: others have taken them over, or will soon."""


class RunFenced(StaleRun):
    """The run was claimed again, or put back into the queue, since the writer claimed it."""

    def __init__(self, run_id: str) -> None:
        super().__init__(f"Run {run_id} belongs to another claim by now.")
