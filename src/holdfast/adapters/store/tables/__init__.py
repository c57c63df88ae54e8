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
from holdfast.adapters.store.tables.file_tables import (
    agent_files,
    agent_folders,
    content_bytes,
    content_texts,
    contents,
    files,
    folders,
    stale_prompts,
)
from holdfast.adapters.store.tables.identity_tables import (
    identities,
    identities_agents,
    identities_blocks,
)
from holdfast.adapters.store.tables.mcp_tables import mcp_servers, mcp_sessions
from holdfast.adapters.store.tables.memory_tables import (
    agent_archives,
    archives,
    message_vectors,
    messages_to_embed,
    passage_tags,
    passage_vectors,
    passages,
    passages_to_embed,
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
    "agent_files",
    "agent_folders",
    "agent_secrets",
    "agent_tags",
    "agent_tools",
    "agents",
    "archives",
    "block_tags",
    "blocks",
    "callbacks",
    "calls",
    "content_bytes",
    "content_texts",
    "contents",
    "context",
    "deployment",
    "events",
    "files",
    "folders",
    "idempotency_keys",
    "identities",
    "identities_agents",
    "identities_blocks",
    "mcp_servers",
    "mcp_sessions",
    "message_vectors",
    "messages",
    "messages_to_embed",
    "metadata",
    "passage_tags",
    "passage_vectors",
    "passages",
    "passages_to_embed",
    "provider_traces",
    "providers",
    "run_requests",
    "run_tools",
    "runs",
    "servers",
    "shared",
    "stale_prompts",
    "step_tags",
    "steps",
    "threads",
    "tools",
]
