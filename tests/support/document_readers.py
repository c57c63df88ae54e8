"""Documents that are read as a server reads them, at a level of the sandbox."""

import contextlib
import os
from collections.abc import AsyncIterator
from typing import Final

import pytest

from holdfast.adapters.documents.sandboxed import SandboxedDocuments
from holdfast.adapters.sandbox.isolation import Isolation, isolation_problem
from holdfast.adapters.sandbox.plain_level import find_tool_user
from holdfast.adapters.sandbox.subprocess import SubprocessSandbox
from holdfast.ports.sandbox import SandboxLimits

LEVELS: Final = ("plain", "isolated")
LIMITS: Final = SandboxLimits(file_bytes=8 * 1024**2)
_ISOLATION: Final = Isolation(network=False)


@contextlib.asynccontextmanager
async def open_sandbox(
    level: str, limits: SandboxLimits = LIMITS
) -> AsyncIterator[SubprocessSandbox]:
    if level == "isolated" and (problem := isolation_problem(_ISOLATION)) is not None:
        pytest.skip(problem)
    sandbox = SubprocessSandbox(
        limits=limits,
        isolation=_ISOLATION if level == "isolated" else None,
        user=find_tool_user("nobody") if os.geteuid() == 0 else None,
    )
    try:
        yield sandbox
    finally:
        await sandbox.close()


@contextlib.asynccontextmanager
async def open_documents(
    level: str, *, limits: SandboxLimits = LIMITS, seconds: float = 60.0
) -> AsyncIterator[SandboxedDocuments]:
    async with open_sandbox(level, limits) as sandbox:
        yield SandboxedDocuments(sandbox, limits=limits, seconds=seconds)
