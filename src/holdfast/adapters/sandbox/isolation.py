"""How far tools are kept apart from the machine: `plain`, or `isolated` in namespaces made by bubblewrap."""

import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import holdfast

BWRAP: Final = "bwrap"

_PROBE_SECONDS: Final = 10.0
_SOURCE_FOLDER: Final = Path(holdfast.__file__).parents[1]
# What each call needs: namespaces of its own.
_PROBE: Final = f"""
import os, sys
own_network = sys.argv[1] == "own"
sys.path.append({str(_SOURCE_FOLDER)!r})
from holdfast.adapters.sandbox import confinement
pid = confinement.fork_in_namespaces(own_network=own_network)
if pid == 0:
    try:
        confinement.enter_namespaces(4096, own_network=own_network)
        os._exit(0)
    finally:
        os._exit(1)
sys.exit(os.waitpid(pid, 0)[1] != 0)
"""

# What programs need to run. Nothing else of the machine is visible, so that no list of secrets is needed.
_SYSTEM_PATHS: Final = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store"),
    *("/etc/alternatives", "/etc/ca-certificates", "/etc/fonts", "/etc/group", "/etc/hosts"),
    *("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime"),
    *("/etc/mime.types", "/etc/nsswitch.conf", "/etc/passwd", "/etc/pki", "/etc/protocols"),
    *("/etc/resolv.conf", "/etc/services", "/etc/ssl", "/etc/timezone"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Isolation:
    """A file system that can only be read, a /tmp of its own, no network unless allowed, own pids."""

    network: bool
    hidden: tuple[str, ...] = ()
    """Folders of the server: not to be seen even if they lie where programs do."""

    def bwrap_command(self, visible: Sequence[str]) -> list[str]:
        """What to put before a command; it becomes the first process of its pid space."""
        shown = [*_SYSTEM_PATHS, *_interpreter_paths()]
        return [
            shutil.which(BWRAP) or BWRAP,
            *("--unshare-all", "--die-with-parent", "--new-session", "--as-pid-1"),
            *(("--share-net",) if self.network else ()),
            # To give each call its namespaces and its /tmp, and to drop these again before it begins.
            *("--cap-drop", "ALL", "--cap-add", "CAP_SYS_ADMIN", "--cap-add", "CAP_SETPCAP"),
            *(() if self.network else ("--cap-add", "CAP_NET_ADMIN")),
            *_bind_options("--ro-bind-try", shown),
            *(word for path in self.hidden if Path(path).exists() for word in ("--tmpfs", path)),
            *_bind_options("--ro-bind-try", visible),
            # If we are root, much of /proc/sys is ours to write whatever our capabilities.
            *("--proc", "/proc", "--remount-ro", "/proc", "--dev", "/dev", "--remount-ro", "/dev"),
            *("--dir", "/tmp", "--remount-ro", "/"),  # noqa: S108 - each call puts its own there
            *("--chdir", "/", "--"),
        ]


def isolation_problem(isolation: Isolation) -> str | None:
    """Why tools cannot be isolated here, in a sentence for the operator; None if they can."""
    asked = "HOLDFAST_SANDBOX=isolated is not possible here"
    if sys.platform != "linux":
        return f"{asked}: it needs Linux. Set it to plain."
    if shutil.which(BWRAP) is None:
        return (
            f"{asked}: bubblewrap (the program bwrap) is not installed. Install the package bubblewrap, or "
            "set it to plain."
        )
    if covered := [path for path in (*_interpreter_paths(), *isolation.hidden) if _is_in_tmp(path)]:
        return f"{asked}: {covered[0]} lies in /tmp, of which each tool has its own. Move it."
    network = "shared" if isolation.network else "own"
    command = [*isolation.bwrap_command(()), sys.executable, "-I", "-c", _PROBE, network]
    try:
        tried = subprocess.run(  # noqa: S603 - our own command
            command, capture_output=True, timeout=_PROBE_SECONDS, check=False, env={}
        )
    except subprocess.TimeoutExpired:
        return f"{asked}: bubblewrap does not answer."
    if tried.returncode == 0:
        return None
    words = tried.stderr.decode(errors="replace").strip().splitlines() or [
        f"exit {tried.returncode}"
    ]
    return (
        f"{asked}: this machine does not let bubblewrap make namespaces ({words[-1]}). Allow user namespaces "
        "(docs/sandbox.md says how), or set it to plain."
    )


def _is_in_tmp(path: str) -> bool:
    return Path(path).resolve().is_relative_to("/tmp")  # noqa: S108 - a question, not a use


def _bind_options(option: str, paths: Sequence[str]) -> list[str]:
    return [word for path in paths for word in (option, path, path)]


def _interpreter_paths() -> list[str]:
    """Our Python and the packages that it has, wherever links lead; and ourselves."""
    named = [sys.prefix, sys.base_prefix, *package_folders(), str(source_folder() / "holdfast")]
    found = {path for name in named for path in (name, str(Path(name).resolve())) if path != "/"}
    return sorted(found, key=len)  # what lies in another comes after it


def package_folders() -> list[str]:
    """Where our interpreter has its packages; tools may import them."""
    names = ("site-packages", "dist-packages")
    return [path for path in sys.path if Path(path).name in names]


def source_folder() -> Path:
    """Where an interpreter that does not have us finds us."""
    return _SOURCE_FOLDER
