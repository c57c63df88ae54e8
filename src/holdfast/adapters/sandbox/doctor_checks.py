"""Checks what this machine supports for the sandbox, by trying it in a separate process."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from holdfast.adapters.sandbox import group_usage
from holdfast.adapters.sandbox.isolation import BWRAP, Isolation, isolation_problem, source_folder
from holdfast.adapters.sandbox.plain_level import (
    describe_root_risk,
    find_tool_user,
    writable_problem,
)
from holdfast.adapters.sandbox.tool_connections import can_find_owners
from holdfast.errors import CannotStart
from holdfast.ports.doctor_check import Check, Verdict

# What the versions of Landlock before these leave open. Renaming from one folder to another is refused before 2, and
# truncating by the seccomp filter before 3.
_LANDLOCK_GAPS: Final = {
    2: "cannot move files from one folder to another, not even in their own",
    3: "cannot truncate a file by its path, not even in their own folder, except on other processors than x86-64 and "
    "ARM64, where they can truncate every file of their user",
    5: "can configure devices that their user may open (ioctl)",
    6: "can connect to programs of this machine by abstract UNIX sockets, if they run as root's tool user",
}
_PROBE_SECONDS: Final = 10.0
_PROBE: Final = """
import ctypes, json, os, sys
sys.path.append(sys.argv[1])
from holdfast.adapters.sandbox import confinement, landlock, syscall_filter
namespaces = confinement.LINUX and ctypes.CDLL(None).unshare(0x10000000) == 0
filters = syscall_filter.build_filters(syscall_filter.Guard())
def works(work):
    pid = os.fork()
    if pid == 0:
        try:
            confinement.drop_privileges()
            os._exit(0 if work() else 1)
        finally:
            os._exit(1)
    return os.waitpid(pid, 0)[1] == 0
def holds_group():
    syscall_filter.install_filter(filters.fork_server)
    syscall_filter.install_filter(filters.call)
    group = os.getpgrp()
    os.setsid()
    return os.getpgrp() == group
group = filters is not None and works(holds_group)
signals = works(landlock.restrict_signals)
abi = landlock.abi_version() if works(lambda: landlock.restrict_files(hidden=())) else 0
print(json.dumps({"group": group, "signals": signals, "landlock": abi, "user_namespaces": namespaces}))
"""


def check_sandbox(isolation: Isolation | None, *, network: bool, home: Path) -> Iterator[Check]:
    """The level of isolation in the settings, whether it is possible here, and the features of the kernel."""
    refusal = isolation_problem(isolation or Isolation(network=network, hidden=(str(home),)))
    if isolation is not None:
        yield _check_isolated(isolation, refusal)
    else:
        yield _check_plain(refusal)
    features = _probe_features()
    yield _check_process_group(is_enforced=bool(features["group"]))
    yield _check_signals(are_restricted=bool(features["signals"]))
    yield check_files(features["landlock"])
    yield _check_group_usage()
    yield _check_bubblewrap()
    yield _check_user_namespaces(allowed=bool(features["user_namespaces"]))
    yield _check_cgroup()


def check_tool_access(
    *, user: str, writable: Sequence[Path], private: Sequence[Path], home: Path, is_plain: bool
) -> Iterator[Check]:
    """Who tools run as, and where they may write."""
    if (problem := writable_problem(writable, private)) is not None:
        yield Check(Verdict.PROBLEM, "tool files", problem)
    try:
        risk = describe_root_risk(user, find_tool_user(user), home) if is_plain else None
    except CannotStart as error:
        yield Check(Verdict.PROBLEM, "tool user", str(error))
    else:
        if risk is not None:
            yield Check(Verdict.NOTE, "tool user", risk)


def check_tool_requests(*, has_password: bool) -> Check:
    """Whether tools can use the API of their own server."""
    subject = "tool requests"
    if has_password:
        message = "Tools need the password like everybody to use this server's API."
        return Check(Verdict.GOOD, subject, message)
    if can_find_owners():
        message = "Tools cannot use this server's API: their connections are recognised."
        return Check(Verdict.GOOD, subject, message)
    message = "Plain tools may use this server's API: connections are not recognised here. Set HOLDFAST_PASSWORD."
    return Check(Verdict.NOTE, subject, message)


def _check_isolated(isolation: Isolation, refusal: str | None) -> Check:
    if refusal is not None:
        return Check(Verdict.PROBLEM, "sandbox", refusal)
    network = "with the network" if isolation.network else "without network"
    message = f"Level isolated, {network}: HOLDFAST_SANDBOX asks for it, and it works here."
    return Check(Verdict.GOOD, "sandbox", message)


def _check_plain(refusal: str | None) -> Check:
    possible = "It would work here." if refusal is None else refusal
    message = f"Level plain: HOLDFAST_SANDBOX does not ask for isolated. {possible}"
    return Check(Verdict.NOTE, "sandbox", message)


def _check_process_group(*, is_enforced: bool) -> Check:
    if is_enforced:
        message = "Tools cannot leave their process group: all that they start ends with them."
        return Check(Verdict.GOOD, "process group", message)
    message = "Tools can leave their process group here (no seccomp filter): a daemon may outlive its call."
    return Check(Verdict.NOTE, "process group", message)


def _check_signals(*, are_restricted: bool) -> Check:
    if are_restricted:
        message = "Tools can send signals only to processes that they started."
        return Check(Verdict.GOOD, "tool signals", message)
    message = "Plain tools can end other programs of this user: only Linux 6.12 and newer can refuse that."
    return Check(Verdict.NOTE, "tool signals", message)


def check_files(landlock_abi: int) -> Check:
    """What the version of Landlock leaves open to plain tools."""
    if landlock_abi == 0:
        message = (
            "Plain tools can read the home of Holdfast, and write to all files of their user: only Linux 5.13 and "
            "newer (Landlock) can refuse that."
        )
        return Check(Verdict.NOTE, "tool files", message)
    message = "Tools write only to their own folder, and cannot reach the home of Holdfast."
    gaps = [gap for version, gap in _LANDLOCK_GAPS.items() if landlock_abi < version]
    if not gaps:
        return Check(Verdict.GOOD, "tool files", message)
    return Check(
        Verdict.NOTE, "tool files", f"{message} With this kernel plain tools {'; '.join(gaps)}."
    )


def _check_group_usage() -> Check:
    if group_usage.is_supported():
        message = "Processes and memory of a call are counted together."
        return Check(Verdict.GOOD, "tool limits", message)
    message = "This kernel does not list the children of a process: limits count per process only."
    return Check(Verdict.NOTE, "tool limits", message)


def _check_bubblewrap() -> Check:
    path = shutil.which(BWRAP)
    if path is None:
        return Check(Verdict.NOTE, "bubblewrap", "Not installed.")
    return Check(Verdict.GOOD, "bubblewrap", f"{_bubblewrap_version(path)} at {path}.")


def _bubblewrap_version(path: str) -> str:
    completed = subprocess.run(  # noqa: S603 - the program that we use
        [path, "--version"], capture_output=True, text=True, timeout=_PROBE_SECONDS, check=False
    )
    found = re.search(r"\d+(\.\d+)+", completed.stdout)
    return found.group() if found else "Unknown version"


def _check_user_namespaces(*, allowed: bool) -> Check:
    verdict = Verdict.GOOD if allowed else Verdict.NOTE
    return Check(verdict, "user namespaces", "Allowed." if allowed else "Not allowed.")


def _check_cgroup() -> Check:
    """The limits of the server's control group, if it is cgroup v2."""
    try:
        lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
        own = next(line.removeprefix("0::") for line in lines if line.startswith("0::"))
        folder = Path("/sys/fs/cgroup") / own.lstrip("/")
        memory = (folder / "memory.max").read_text(encoding="utf-8").strip()
        processes = (folder / "pids.max").read_text(encoding="utf-8").strip()
    except (OSError, StopIteration):
        return Check(Verdict.NOTE, "cgroup", "No limits on the server as a whole can be seen.")
    message = f"The server as a whole has {memory} bytes of memory and {processes} processes."
    return Check(Verdict.GOOD, "cgroup", message.replace("max ", "unlimited "))


def _probe_features() -> dict[str, int]:
    completed = subprocess.run(  # noqa: S603 - our own code
        [sys.executable, "-I", "-c", _PROBE, str(source_folder())],
        capture_output=True,
        timeout=_PROBE_SECONDS,
        check=False,
    )
    features: dict[str, int] = json.loads(completed.stdout) if completed.returncode == 0 else {}
    nothing = {"group": False, "signals": False, "landlock": 0, "user_namespaces": False}
    return nothing | features
