"""All ports together: what use cases and the engine may use. ``assembly`` builds it once."""

from dataclasses import dataclass, field

from holdfast.ports.bell import Bell
from holdfast.ports.clock import Clock, Ids
from holdfast.ports.dispatch import Dispatch
from holdfast.ports.documents import NO_DOCUMENTS, Documents
from holdfast.ports.embedder import NO_EMBEDDER, Embedder
from holdfast.ports.event_log import EventLog
from holdfast.ports.lease import Lease
from holdfast.ports.mcp import DEFAULT_MCP_OPTIONS, NO_MCP, McpClient, McpOptions
from holdfast.ports.mcp_authorization import NO_MCP_AUTHORIZATION, McpAuthorization
from holdfast.ports.model import Catalogue, Model
from holdfast.ports.outgoing import Outgoing
from holdfast.ports.prices import Prices
from holdfast.ports.store import Store
from holdfast.ports.telemetry import NO_TELEMETRY, Telemetry
from holdfast.ports.toolbox import Toolbox
from holdfast.ports.unfinished_work import UnfinishedWork


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits that the operator can set; each is a setting of the same name in ``config``."""

    # How long a message waits for a free thread before it is refused.
    busy_wait_seconds: float = 30.0
    # How long one tool call may take.
    tool_timeout_seconds: float = 180.0
    # How long connecting to an MCP server, and one call of a tool there, may take.
    mcp_connect_seconds: float = 30.0
    mcp_call_seconds: float = 60.0
    # How often in a row an unfinished run of a dead process is continued without progress before it is ended as failed.
    max_recoveries: int = 3
    # How many runs one process executes at a time; more wait in the queue.
    max_runs: int = 1000
    # How often the model is asked for one answer when its provider fails temporarily, including the first time.
    model_attempts: int = 5
    # How long after the first attempt another one may start.
    model_retry_seconds: float = 60.0
    # How long a run may make no progress before it is ended as failed.
    run_stall_seconds: float = 900.0
    # How many bytes of a request to a provider, and of its answer, are stored for inspection; 0: none.
    max_trace_bytes: int = 0
    # How often a callback is attempted before it is given up.
    callback_attempts: int = 8
    # The largest file that can be uploaded.
    max_file_mb: int = 50

    @property
    def max_file_bytes(self) -> int:
        return self.max_file_mb * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    store: Store
    events: EventLog
    dispatch: Dispatch
    bell: Bell
    lease: Lease
    model: Model
    catalogue: Catalogue
    toolbox: Toolbox
    outgoing: Outgoing
    prices: Prices
    clock: Clock
    ids: Ids
    embedder: Embedder = NO_EMBEDDER
    documents: Documents = NO_DOCUMENTS
    # The handle of the model that makes vectors of messages; None: they are found by their words only.
    message_embedding: str | None = None
    mcp: McpClient = NO_MCP
    mcp_options: McpOptions = DEFAULT_MCP_OPTIONS
    mcp_authorization: McpAuthorization = NO_MCP_AUTHORIZATION
    limits: Limits = Limits()
    telemetry: Telemetry = NO_TELEMETRY
    unfinished_work: UnfinishedWork = field(default_factory=UnfinishedWork)
