"""The user that plain tools run as if the server runs as root, and the folders that this user needs.

Python and the packages may be in a folder that only root may enter, such as root's home. The fork server then shows the
tools another folder in its place, which contains only what they need. Imports only the standard library.
"""

import contextlib
import ctypes
import os
import pwd
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from holdfast.adapters.sandbox import confinement

_MS_RDONLY: Final = 1
_MS_NOSUID: Final = 2
_MS_NODEV: Final = 4
_MS_REMOUNT: Final = 32
_MS_BIND: Final = 4096
_MS_REC: Final = 16384
_MS_PRIVATE: Final = 1 << 18
_MNT_DETACH: Final = 2
_CLONE_NEWNS: Final = 0x00020000
_NOBODY: Final = 65534
# CAP_CHOWN, CAP_SETGID, CAP_SETUID; CAP_SYS_ADMIN.
_SWITCH_CAPABILITIES: Final = 1 << 0 | 1 << 6 | 1 << 7
_MOUNT_CAPABILITY: Final = 1 << 21

_libc = ctypes.CDLL(None, use_errno=True)


class ToolUser(NamedTuple):
    uid: int
    gid: int

    @classmethod
    def find(cls, name: str) -> "ToolUser":
        """The user of this name or number. Raises KeyError if there is no such name."""
        if not name.isdigit():
            try:
                entry = pwd.getpwnam(name)
            except KeyError:
                if name == "nobody":  # small container images have no such line
                    return cls(_NOBODY, _NOBODY)
                raise
            return cls(entry.pw_uid, entry.pw_gid)
        try:
            return cls(int(name), pwd.getpwuid(int(name)).pw_gid)
        except KeyError:
            return cls(int(name), int(name))

    def switch_problem(self, needed: Sequence[str]) -> str | None:
        """Why tools cannot run as this user, as the end of a sentence; None if they can."""
        if _SWITCH_CAPABILITIES & ~_effective_capabilities():
            return "the server may not change to another user"
        if (path := self.find_unreachable(needed)) is not None:
            return f"that user cannot reach {path}, and the server may not mount it elsewhere"
        unreadable = [path for path in needed if not self._may(path, stat.S_IROTH | stat.S_IXOTH)]
        return f"that user may not read {unreadable[0]}" if unreadable else None

    def find_unreachable(self, paths: Sequence[str]) -> str | None:
        """The first path that lies in a folder which is closed to this user and cannot be replaced."""
        if _effective_capabilities() & _MOUNT_CAPABILITY:
            return None
        return next((path for path in paths if self._closed_parent(path) is not None), None)

    def become(self, *, needed: Sequence[str], writable: Sequence[str], folder: str) -> bool:
        """Continue as this user, without privileges and as owner of the folder. Returns whether it was possible; if not,
        the user is the same as before and the privileges are still to be dropped."""
        if self.switch_problem(needed) is not None:
            return False
        try:
            self._open_paths([*needed, *writable, folder])
            if any(self._closed_parent(path) is not None for path in (*needed, folder)):
                return False
            confinement.drop_privileges(lambda: self._change_ids(folder))
        except OSError:  # no mounts here, or a container that does not have this user
            return False
        return True

    def _change_ids(self, folder: str) -> None:
        before = os.getuid(), os.getgid()
        try:
            os.setgroups([])
            os.chown(folder, self.uid, self.gid)
            os.setresgid(self.gid, self.gid, self.gid)
            os.setresuid(self.uid, self.uid, self.uid)
        except OSError:
            os.setresgid(before[1], before[1], before[1])
            os.chown(folder, *before)
            raise

    def _open_paths(self, paths: Sequence[str]) -> None:
        """Make the paths reachable, in a mount namespace of this process. Each folder that is closed to the user is
        replaced by a read-only one that contains only those paths."""
        closed: dict[str, list[str]] = {}
        for path in sorted(set(paths), key=len):
            if (parent := self._closed_parent(path)) is not None:
                closed.setdefault(parent, []).append(path)
        if not closed:
            return
        _check(_libc.unshare(_CLONE_NEWNS))
        _mount(None, "/", _MS_REC | _MS_PRIVATE)
        before = os.umask(stat.S_IWGRP | stat.S_IWOTH)
        try:
            for parent, inside in closed.items():
                _cover_folder(parent, inside)
        finally:
            os.umask(before)

    def _closed_parent(self, path: str) -> str | None:
        """The uppermost folder above the path that the user may not enter."""
        parents = reversed(Path(path).parents)
        return next((str(each) for each in parents if not self._may(str(each), stat.S_IXOTH)), None)

    def _may(self, path: str, wanted: int) -> bool:
        """Whether the permission bits allow what is wanted, which is given as the bits for others."""
        try:
            found = os.stat(path)  # noqa: PTH116 - no more imports than needed
        except OSError:
            return False
        shift = 6 if found.st_uid == self.uid else 3 if found.st_gid == self.gid else 0
        return found.st_mode >> shift & wanted == wanted


def _cover_folder(folder: str, paths: Sequence[str]) -> None:
    """Mount an empty folder over this one, and these paths of it at the same place in the empty one."""
    with contextlib.ExitStack() as opened:
        sources = {path: os.open(path, os.O_PATH | os.O_CLOEXEC) for path in paths}
        for fd in sources.values():
            opened.callback(os.close, fd)
        _mount("tmpfs", folder, _MS_NOSUID | _MS_NODEV, b"mode=0755,size=1m", kind="tmpfs")
        try:
            _mount_sources(sources)
            _mount(None, folder, _MS_REMOUNT | _MS_RDONLY | _MS_NOSUID | _MS_NODEV)
        except OSError:
            _libc.umount2(os.fsencode(folder), _MNT_DETACH)
            raise


def _mount_sources(sources: dict[str, int]) -> None:
    mounted: list[str] = []
    for path, fd in sources.items():
        if any(Path(path).is_relative_to(other) for other in mounted):
            continue
        place = Path(path)
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            place.mkdir(parents=True, exist_ok=True)
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.touch()
        _mount(f"/proc/self/fd/{fd}", path, _MS_BIND | _MS_REC)
        mounted.append(path)


def _mount(
    source: str | None,
    target: str,
    flags: int,
    options: bytes | None = None,
    kind: str | None = None,
) -> None:
    encoded = [None if text is None else os.fsencode(text) for text in (source, target, kind)]
    _check(_libc.mount(*encoded, ctypes.c_ulong(flags), options))


def _check(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _effective_capabilities() -> int:
    lines = _status_lines()
    return next((int(value, 16) for name, value in lines if name == "CapEff"), 0)


def _status_lines() -> Iterator[tuple[str, str]]:
    with contextlib.suppress(OSError), open("/proc/self/status", encoding="utf-8") as file:  # noqa: PTH123 - as above
        for line in file:
            name, _, value = line.partition(":")
            yield name, value.strip()
