"""The sandbox level `isolated`: tools run in namespaces that bubblewrap makes. (The other level is `plain`.)"""

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import holdfast

BWRAP: Final = "bwrap"

_PROBE_SECONDS: Final = 10.0
_SOURCE_FOLDER: Final = Path(holdfast.__file__).parents[1]
# Makes namespaces as each call will do.
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

# What programs need to run. Nothing else of the machine is visible, so no list of secret paths is needed.
_SYSTEM_PATHS: Final = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store"),
    *("/etc/alternatives", "/etc/ca-certificates", "/etc/fonts", "/etc/group", "/etc/hosts"),
    *("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime"),
    *("/etc/mime.types", "/etc/nsswitch.conf", "/etc/passwd", "/etc/pki", "/etc/protocols"),
    *("/etc/resolv.conf", "/etc/services", "/etc/ssl", "/etc/timezone"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Isolation:
    """A read-only file system, an own /tmp and own pids for each call, and no network unless allowed."""

    network: bool
    hidden: tuple[str, ...] = ()
    """Folders of the server: invisible even if they lie inside a visible folder."""
    writable: tuple[str, ...] = ()
    """Paths of this machine that tools may write to."""

    def bwrap_command(self, visible: Sequence[str]) -> list[str]:
        """The words to put before a command, which becomes process 1 of a pid namespace."""
        hidden = [path for path in dict.fromkeys(self.hidden) if Path(path).exists()]
        return [
            shutil.which(BWRAP) or BWRAP,
            *("--unshare-all", "--die-with-parent", "--new-session", "--as-pid-1"),
            *(("--share-net",) if self.network else ()),
            # Needed to make the namespaces and the /tmp of each call; dropped again before the call begins.
            *("--cap-drop", "ALL", "--cap-add", "CAP_SYS_ADMIN", "--cap-add", "CAP_SETPCAP"),
            *(() if self.network else ("--cap-add", "CAP_NET_ADMIN")),
            *_bind_options("--ro-bind-try", _shown_paths()),
            *(word for path in hidden for word in ("--tmpfs", path)),
            *_bind_options("--ro-bind-try", _find_inside(hidden, interpreter_paths())),
            *_bind_options("--ro-bind-try", visible),
            *_bind_options("--bind", self.writable),
            # Calls could leave files there to each other, in memory that is not counted.
            *(word for path in hidden for word in ("--remount-ro", path)),
            # Root can write to much of /proc/sys even without capabilities.
            *("--proc", "/proc", "--remount-ro", "/proc", "--dev", "/dev", "--remount-ro", "/dev"),
            *("--dir", "/tmp", "--remount-ro", "/"),  # noqa: S108 - each call mounts its own there
            *("--chdir", "/", "--"),
        ]


def isolation_problem(isolation: Isolation) -> str | None:
    """Why isolation is not possible here, as a sentence for the operator; None if it is."""
    refusal = "HOLDFAST_SANDBOX=isolated is not possible here"
    if sys.platform != "linux":
        return f"{refusal}: it needs Linux. Set it to plain."
    if shutil.which(BWRAP) is None:
        return (
            f"{refusal}: bubblewrap (the program bwrap) is not installed. Install the package bubblewrap, or "
            "set it to plain."
        )
    outside = (*interpreter_paths(), *isolation.hidden, *isolation.writable)
    if covered := [path for path in outside if _is_in_tmp(path)]:
        return f"{refusal}: {covered[0]} is in /tmp, but each tool has its own /tmp. Move it."
    if mixed := [path for path in isolation.hidden if path in _shown_paths()]:
        return f"{refusal}: {mixed[0]} contains both Holdfast's own files and what tools need. Move one of them."
    network = "shared" if isolation.network else "own"
    command = [*isolation.bwrap_command(()), sys.executable, "-I", "-c", _PROBE, network]
    try:
        completed = subprocess.run(  # noqa: S603 - our own command
            command, capture_output=True, timeout=_PROBE_SECONDS, check=False, env={}
        )
    except subprocess.TimeoutExpired:
        return f"{refusal}: bubblewrap does not answer."
    if completed.returncode == 0:
        return None
    lines = completed.stderr.decode(errors="replace").strip().splitlines() or [
        f"exit {completed.returncode}"
    ]
    return (
        f"{refusal}: this machine does not let bubblewrap make namespaces ({lines[-1]}). Allow user namespaces "
        "(docs/sandbox.md says how), or set it to plain."
    )


def find_visible_names(folders: Sequence[Path]) -> list[str]:
    """The names by which isolated tools would see these folders: in most systems /lib is a link to /usr/lib."""
    names = {
        Path(shown) / folder.resolve().relative_to(Path(shown).resolve())
        for shown in _shown_paths()
        for folder in folders
        if folder.resolve().is_relative_to(Path(shown).resolve())
    }
    return sorted(map(str, names), key=len)


def _shown_paths() -> list[str]:
    return [*_SYSTEM_PATHS, *interpreter_paths()]


def _find_inside(folders: Sequence[str], paths: Sequence[str]) -> list[str]:
    return [path for path in paths if any(Path(path).is_relative_to(each) for each in folders)]


def _is_in_tmp(path: str) -> bool:
    return Path(path).resolve().is_relative_to("/tmp")  # noqa: S108 - compared, not used


def _bind_options(option: str, paths: Sequence[str]) -> list[str]:
    return [word for path in paths for word in (option, path, path)]


def interpreter_paths() -> list[str]:
    """The folders of our Python, its packages and Holdfast, with the targets of links; those that exist."""
    folders = [sys.prefix, sys.base_prefix, *package_folders(), str(source_folder() / "holdfast")]
    # The program of a virtual environment is a link, maybe to another one.
    program = Path(sys.executable)
    while program.is_symlink():
        program = program.parent / program.readlink()
        folders.append(os.path.normpath(program.parent))
    paths = {
        path for folder in folders for path in (folder, str(Path(folder).resolve())) if path != "/"
    }
    # A folder inside another comes after it.
    return sorted((path for path in paths if Path(path).exists()), key=len)


def code_paths() -> list[str]:
    """What the server executes: Python's program and library, the packages and Holdfast. Not the whole prefix of Python,
    which may be /usr."""
    # The program of a virtual environment is a link, which could be replaced.
    programs = [str(Path(sys.executable).parent), sys.executable]
    library = [sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")]
    return [*programs, *library, *package_folders(), str(source_folder() / "holdfast")]


def package_folders() -> list[str]:
    """The package folders of our interpreter; tools may import from them."""
    names = ("site-packages", "dist-packages")
    return [path for path in sys.path if Path(path).name in names]


def source_folder() -> Path:
    """The folder to add to ``sys.path`` of an interpreter that cannot import ``holdfast``."""
    return _SOURCE_FOLDER
