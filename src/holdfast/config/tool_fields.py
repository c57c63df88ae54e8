"""The settings of tools: where they run, and what each call may use.

The classes of settings are derived from each other, because a dataclass with slots can have only one base with fields.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

from holdfast.config.memory_fields import MemoryFields
from holdfast.config.parsing import (
    integer_between,
    one_of,
    parse_absolute_paths,
    parse_seconds,
    parse_switch,
)
from holdfast.config.spec import SettingSpec
from holdfast.ports.sandbox import SandboxLimits
from holdfast.ports.services import Limits

SANDBOX_LEVELS: Final = ("plain", "isolated")

_LIMITS = Limits()
_TOOL_LIMITS = SandboxLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFields(MemoryFields):
    tool_timeout_seconds: Annotated[
        float,
        SettingSpec(
            description="How long one tool call may take.",
            variables=("HOLDFAST_TOOL_TIMEOUT_SECONDS",),
            parse=parse_seconds,
            accepts="a number of seconds, 0 or more",
        ),
    ] = _LIMITS.tool_timeout_seconds
    sandbox: Annotated[
        str,
        SettingSpec(
            description="How tools are isolated from this machine: `plain`, or `isolated`, which needs Linux and bubblewrap.",
            variables=("HOLDFAST_SANDBOX",),
            parse=one_of(SANDBOX_LEVELS),
            accepts=f"one of {', '.join(SANDBOX_LEVELS)}",
        ),
    ] = "plain"
    sandbox_network: Annotated[
        bool,
        SettingSpec(
            description="Let isolated tools use the network. Plain ones always can.",
            variables=("HOLDFAST_SANDBOX_NETWORK",),
            parse=parse_switch,
            accepts="true or false",
        ),
    ] = False
    sandbox_writable: Annotated[
        tuple[Path, ...],
        SettingSpec(
            description="Files and folders that tools may write to besides their own temporary folder, separated by commas.",
            variables=("HOLDFAST_SANDBOX_WRITABLE",),
            parse=parse_absolute_paths,
            accepts="absolute paths, separated by commas",
            default="none",
        ),
    ] = ()
    sandbox_user: Annotated[
        str,
        SettingSpec(
            description="The user that plain tools run as if the server runs as root: a name or a number.",
            variables=("HOLDFAST_SANDBOX_USER",),
            accepts="the name or the number of a user",
        ),
    ] = "nobody"
    tool_memory_bytes: Annotated[
        int,
        SettingSpec(
            description="How much memory the processes of one tool call may use.",
            variables=("HOLDFAST_TOOL_MEMORY_BYTES",),
            parse=integer_between(64 * 1024**2, 2**50),
            accepts="a number of bytes, 67108864 or more",
        ),
    ] = _TOOL_LIMITS.memory_bytes
    tool_processes: Annotated[
        int,
        SettingSpec(
            description="How many processes one tool call may have at once.",
            variables=("HOLDFAST_TOOL_PROCESSES",),
            parse=integer_between(1, 10_000),
            accepts="a number from 1 to 10000",
        ),
    ] = _TOOL_LIMITS.processes
    tool_open_files: Annotated[
        int,
        SettingSpec(
            description="How many files and sockets a process of a tool may have open.",
            variables=("HOLDFAST_TOOL_OPEN_FILES",),
            parse=integer_between(16, 2**20),
            accepts="a number from 16 to 1048576",
        ),
    ] = _TOOL_LIMITS.open_files
    tool_file_bytes: Annotated[
        int,
        SettingSpec(
            description="How large a file that a tool writes may be; in an isolated tool's `/tmp`, all files together.",
            variables=("HOLDFAST_TOOL_FILE_BYTES",),
            parse=integer_between(0, 2**50),
            accepts="a number of bytes, 0 or more",
        ),
    ] = _TOOL_LIMITS.file_bytes
    tool_folder_bytes: Annotated[
        int,
        SettingSpec(
            description="How much space the files of a plain tool call may take together.",
            variables=("HOLDFAST_TOOL_FOLDER_BYTES",),
            parse=integer_between(0, 2**50),
            accepts="a number of bytes, 0 or more",
        ),
    ] = _TOOL_LIMITS.folder_bytes
    tool_output_bytes: Annotated[
        int,
        SettingSpec(
            description="How much a tool call may print before it is ended. The first 1 MiB of each stream is stored.",
            variables=("HOLDFAST_TOOL_OUTPUT_BYTES",),
            parse=integer_between(0, 2**50),
            accepts="a number of bytes, 0 or more",
        ),
    ] = _TOOL_LIMITS.output_bytes
    tool_install_seconds: Annotated[
        float,
        SettingSpec(
            description="How long the installation of a tool's packages may take.",
            variables=("HOLDFAST_TOOL_INSTALL_SECONDS",),
            parse=parse_seconds,
            accepts="a number of seconds, 0 or more",
        ),
    ] = 600.0
