"""The store: everything that Holdfast keeps. A transaction is a plain function; all of it is committed or nothing.

    agent = await store.read(lambda tx: tx.agents.get(actor.organization_id, agent_id))

These rules hold for every repository unless a docstring says otherwise:

- Every object belongs to an organisation. An object of another organisation is not found.
- ``get``, ``save`` and ``delete`` raise NotFound ``<Kind> with ID <id> not found`` if there is no such object.
- A list follows ``Page``: it is sorted by ``order_by``, then by id. ``after`` selects the next page in sort order,
  ``before`` the previous one, which is returned in sort order too. An unknown cursor raises NotFound
  ``No <Kind> found with id <cursor>``.
- A mapping by id has an entry for each id that was given, unless "only" says which ids have one.
"""

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
from holdfast.ports.store.identities import Identities, IdentityLinks
from holdfast.ports.store.mcp_servers import McpServers
from holdfast.ports.store.mcp_sessions import McpSessions
from holdfast.ports.store.messages import Messages
from holdfast.ports.store.passages import Passages
from holdfast.ports.store.providers import Providers
from holdfast.ports.store.queue import Queue, QueueDepth
from holdfast.ports.store.runs import Runs
from holdfast.ports.store.search_index import SearchIndex
from holdfast.ports.store.servers import Renewal, Servers
from holdfast.ports.store.stale_prompts import StalePrompts
from holdfast.ports.store.steps import Steps
from holdfast.ports.store.store import Store, Transaction
from holdfast.ports.store.threads import Threads
from holdfast.ports.store.tools import Tools
from holdfast.ports.store.traces import Traces
from holdfast.ports.store.vectors import Vectors

__all__ = [
    "AgentFiles",
    "Agents",
    "Archives",
    "Blocks",
    "Callbacks",
    "Calls",
    "Contents",
    "Events",
    "Files",
    "Folders",
    "Identities",
    "IdentityLinks",
    "McpServers",
    "McpSessions",
    "Messages",
    "Passages",
    "Providers",
    "Queue",
    "QueueDepth",
    "Removals",
    "Renewal",
    "Runs",
    "SearchIndex",
    "Servers",
    "StalePrompts",
    "Steps",
    "Store",
    "Threads",
    "Tools",
    "Traces",
    "Transaction",
    "Vectors",
]
