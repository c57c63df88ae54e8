"""The store and its transactions."""

from collections.abc import Callable
from typing import Protocol, TypeVar

from holdfast.ports.store.agent_files import AgentFiles
from holdfast.ports.store.agents import Agents
from holdfast.ports.store.archives import Archives
from holdfast.ports.store.blocks import Blocks
from holdfast.ports.store.callbacks import Callbacks
from holdfast.ports.store.calls import Calls
from holdfast.ports.store.contents import Contents, Removals
from holdfast.ports.store.events import Events
from holdfast.ports.store.files import Files
from holdfast.ports.store.folders import Folders
from holdfast.ports.store.identities import Identities
from holdfast.ports.store.mcp_servers import McpServers
from holdfast.ports.store.mcp_sessions import McpSessions
from holdfast.ports.store.messages import Messages
from holdfast.ports.store.passages import Passages
from holdfast.ports.store.providers import Providers
from holdfast.ports.store.queue import Queue
from holdfast.ports.store.runs import Runs
from holdfast.ports.store.search_index import SearchIndex
from holdfast.ports.store.servers import Servers
from holdfast.ports.store.stale_prompts import StalePrompts
from holdfast.ports.store.steps import Steps
from holdfast.ports.store.threads import Threads
from holdfast.ports.store.tools import Tools
from holdfast.ports.store.traces import Traces
from holdfast.ports.store.vectors import Vectors

T = TypeVar("T")


class Transaction(Protocol):
    """The repositories, all in one transaction."""

    @property
    def agents(self) -> Agents: ...
    @property
    def tools(self) -> Tools: ...
    @property
    def blocks(self) -> Blocks: ...
    @property
    def identities(self) -> Identities: ...
    @property
    def providers(self) -> Providers: ...
    @property
    def mcp_servers(self) -> McpServers: ...
    @property
    def mcp_sessions(self) -> McpSessions: ...
    @property
    def threads(self) -> Threads: ...
    @property
    def messages(self) -> Messages: ...
    @property
    def archives(self) -> Archives: ...
    @property
    def passages(self) -> Passages: ...
    @property
    def passage_vectors(self) -> Vectors: ...
    @property
    def message_vectors(self) -> Vectors: ...
    @property
    def folders(self) -> Folders: ...
    @property
    def files(self) -> Files: ...
    @property
    def contents(self) -> Contents: ...
    @property
    def removals(self) -> Removals: ...
    @property
    def agent_files(self) -> AgentFiles: ...
    @property
    def stale_prompts(self) -> StalePrompts: ...
    @property
    def search_index(self) -> SearchIndex: ...
    @property
    def calls(self) -> Calls: ...
    @property
    def runs(self) -> Runs: ...
    @property
    def queue(self) -> Queue: ...
    @property
    def servers(self) -> Servers: ...
    @property
    def callbacks(self) -> Callbacks: ...
    @property
    def steps(self) -> Steps: ...
    @property
    def traces(self) -> Traces: ...
    @property
    def events(self) -> Events: ...

    def write_probe(self) -> None:
        """Make the smallest write that reaches the disk, and change nothing: to find out whether writing works."""
        ...

    def has_disk_space(self) -> bool:
        """Whether the disk has room, as far as the store can know. On a full one single writes may still succeed: a
        database uses the room of its files again."""
        ...


class Store(Protocol):
    async def write(self, work: Callable[[Transaction], T]) -> T:
        """Run ``work`` in one read-write transaction and return its result. Everything is committed when ``work``
        returns, and nothing if it raises.

        ``work`` runs on a thread of the store. It must not await and must not keep the transaction. It is run again
        if transactions conflict, so it must have no other effects. An error of the store ends the transaction, so
        ``work`` must not catch it (StaleRun and NotFound excepted).

        Cancelling the caller does not undo the work. StoreUnavailable if the database cannot be reached: then nothing
        is committed, unless it is an OutcomeUnknown."""
        ...

    async def read(self, work: Callable[[Transaction], T]) -> T:
        """Run ``work`` on one consistent snapshot and return its result. ``work`` must not write."""
        ...

    async def close(self) -> None:
        """Finish the work that was accepted, and release all connections and locks."""
        ...
