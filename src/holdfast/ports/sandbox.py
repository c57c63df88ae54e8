"""The sandbox: running a custom tool's Python source outside the server's process."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

FIRST_DESCRIPTOR: Final = 4
"""The number at which a call finds the first of its ``descriptors``."""
MAX_DESCRIPTORS: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxLimits:
    """Limits of one call besides time; see docs/sandbox.md."""

    memory_bytes: int = 1024**3
    processes: int = 64
    threads: int = 1024
    """Threads of all processes of the call together. They use up the process ids of the machine."""
    open_files: int = 256
    file_bytes: int = 256 * 1024**2
    folder_bytes: int = 1024**3
    """All files in the folder of the call. An isolated call's folder is in memory and limited by ``file_bytes``."""
    folder_files: int = 100_000
    """Files and folders in the folder of the call."""
    output_bytes: int = 64 * 1024**2


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFunction:
    """A function that the source finds and the server executes."""

    name: str
    """Its name in the source."""
    tool: str
    """What the server is asked for."""
    parameters: tuple[str, ...] = ()
    """What positional arguments mean."""
    description: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxCall:
    source: str
    function: str
    arguments: Mapping[str, Any]
    timeout_seconds: float
    env: Mapping[str, str]
    agent_state: Mapping[str, Any] | None = None
    requirements: tuple[str, ...] = ()
    """Packages that the source needs, in the normal form of `core/requirements.py`."""
    descriptors: tuple[int, ...] = ()
    """Open files of the server that the call may use: the only way to a file that it cannot open by its path. It finds them
    at the numbers from ``FIRST_DESCRIPTOR`` on, in this order; at most ``MAX_DESCRIPTORS``."""
    functions: tuple[ServerFunction, ...] = ()
    """Functions that ask the server, by the protocol of `adapters/sandbox/server_functions.py`. The first descriptor is the
    socket for it. A call with functions waits for other calls, so it does not take a slot that those need."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxResult:
    """``value`` belongs to ``finished``; ``error`` ("ExcType: message" or a sentence) to the other statuses.
    ``exceeded_limit``: what the call used too much of, and was killed for: ``memory``, ``processes`` and so on."""

    status: Literal["finished", "failed", "timed_out"]
    value: Any = None
    error: str | None = None
    exceeded_limit: str | None = None
    stdout: tuple[str, ...] = ()
    stderr: tuple[str, ...] = ()
    duration_seconds: float = 0.0


class Sandbox(Protocol):
    async def run(self, call: SandboxCall) -> SandboxResult:
        """Call the function with its arguments, coerced by their annotations (wire-v1 §7.4).

        The tool sees nothing of the server's environment except paths, language and time zone. It works in its own
        folder, which is removed afterwards. ``agent_state`` is passed only to a function that has a parameter for it.
        Required packages are installed first, once, in an environment that only tools with the same requirements
        share.

        A tool that fails or exceeds a limit, and requirements that cannot be installed, are a result and not an
        exception. BackendError if the machine cannot start processes. When this returns or is cancelled, every
        process that the call started is dead. The time limit starts with the tool: waiting for a free slot and
        installing packages do not count.
        """
        ...

    async def close(self) -> None:
        """Kill all running calls and release everything. The sandbox cannot be used afterwards."""
        ...
