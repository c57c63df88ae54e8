"""Documents: how the text of uploaded files is extracted."""

import os
from contextlib import AsyncExitStack
from dataclasses import replace

from holdfast.adapters.documents.sandboxed import SandboxedDocuments
from holdfast.adapters.sandbox.leftovers import ToolRecord
from holdfast.adapters.sandbox.plain_level import find_tool_user
from holdfast.adapters.sandbox.subprocess import SubprocessSandbox
from holdfast.assembly.tools import TOOL_RECORDS, build_isolation, private_paths
from holdfast.config import Settings


def open_documents(settings: Settings, stack: AsyncExitStack) -> SandboxedDocuments:
    """In a sandbox of their own, at the level of the tools, which has been checked: documents have other limits, and many of
    them must not keep tools waiting. Its process starts with the first document, and ends when there was none for a while."""
    isolation = build_isolation(settings)
    limits = settings.document_limits
    sandbox = SubprocessSandbox(
        limits=limits,
        isolation=None if isolation is None else replace(isolation, network=False, writable=()),
        hidden=private_paths(settings),
        user=find_tool_user(settings.sandbox_user),
        max_concurrent=max(1, (os.cpu_count() or 1) // 2),
        record=ToolRecord(settings.home / TOOL_RECORDS),
        stops_when_idle=True,
    )
    stack.push_async_callback(sandbox.close)
    return SandboxedDocuments(sandbox, limits=limits, seconds=settings.document_seconds)
