"""Running a custom tool's Python source outside the server's process."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxLimits:
    """What one call may use besides time. Docs: docs/sandbox.md."""

    memory_bytes: int = 1024**3
    processes: int = 64
    threads: int = 1024
    """Of all its processes together: of the numbers that they need the machine has a limited store."""
    open_files: int = 256
    file_bytes: int = 256 * 1024**2
    output_bytes: int = 64 * 1024**2


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxCall:
    source: str
    function: str
    arguments: Mapping[str, Any]
    timeout_seconds: float
    env: Mapping[str, str]
    agent_state: Mapping[str, Any] | None = None
    requirements: tuple[str, ...] = ()
    """Packages that the source needs, as `core/requirements.py` writes them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxResult:
    """``value`` belongs to ``finished``, ``error`` ("ExcType: message" or a sentence) to the others."""

    status: Literal["finished", "failed", "timed_out"]
    value: Any = None
    error: str | None = None
    stdout: tuple[str, ...] = ()
    stderr: tuple[str, ...] = ()
    duration_seconds: float = 0.0


class Sandbox(Protocol):
    async def run(self, call: SandboxCall) -> SandboxResult:
        """Call the function with its arguments, coerced by their annotations (wire-v1 §7.4).

        The tool sees none of the server's environment but what names paths, language and time zone,
        and works in a folder of its own that is removed afterwards. ``agent_state`` is passed only to
        a function that asks for it. Packages that it requires are installed first, once, in an
        environment that only tools with the same requirements share.

        Whatever the tool does wrong is a result, never an exception, and so are requirements that cannot
        be installed and limits that it meets; a machine that cannot start processes is a BackendError.
        When this returns, and also when it is cancelled, every process that the call started is dead.
        The time limit starts when the tool does, not while the call waits for its place among those that
        run at once or for its packages.
        """
        ...

    async def close(self) -> None:
        """Kill what runs and give everything back. The sandbox is not used again."""
        ...
