"""The tables as they are now. How they evolved is in ``migrations``; a test compares the two.

A column exists where something is filtered, sorted or joined by it. All other fields of a value are in ``body``.
"""

from holdfast.adapters.store.tables.agent_tables import (
    agent_blocks,
    agent_secrets,
    agent_tags,
    agent_tools,
    agents,
    block_tags,
    blocks,
    providers,
    tools,
)
from holdfast.adapters.store.tables.memory_tables import (
    agent_archives,
    archives,
    passage_tags,
    passages,
)
from holdfast.adapters.store.tables.run_tables import (
    callbacks,
    events,
    idempotency_keys,
    run_requests,
    run_tools,
    runs,
)
from holdfast.adapters.store.tables.schema import metadata
from holdfast.adapters.store.tables.server_tables import deployment, servers
from holdfast.adapters.store.tables.step_tables import (
    provider_traces,
    step_tags,
    steps,
)
from holdfast.adapters.store.tables.thread_tables import (
    calls,
    context,
    messages,
    shared,
    threads,
)

__all__ = [
    "agent_archives",
    "agent_blocks",
    "agent_secrets",
    "agent_tags",
    "agent_tools",
    "agents",
    "archives",
    "block_tags",
    "blocks",
    "callbacks",
    "calls",
    "context",
    "deployment",
    "events",
    "idempotency_keys",
    "messages",
    "metadata",
    "passage_tags",
    "passages",
    "provider_traces",
    "providers",
    "run_requests",
    "run_tools",
    "runs",
    "servers",
    "shared",
    "step_tags",
    "steps",
    "threads",
    "tools",
]
