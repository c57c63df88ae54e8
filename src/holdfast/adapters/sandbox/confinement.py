"""Confines a tool's process by the kernel: resource limits, process group, privileges, namespaces.

Runs in the sandbox's own processes; imports only the standard library. On systems without the Linux calls the
limits and the process group are all there is (docs/sandbox.md).
"""

import ctypes
import errno
import fcntl
import os
import resource
import signal
import socket
import struct
import sys
from collections.abc import Callable
from typing import Final, NoReturn

from holdfast.adapters.sandbox.syscall_filter import syscall_number

_PR_SET_DUMPABLE: Final = 4
_PR_CAPBSET_DROP: Final = 24
_PR_SET_CHILD_SUBREAPER: Final = 36
_PR_SET_NO_NEW_PRIVS: Final = 38
_CLONE_NEWNS: Final = 0x00020000
_CLONE_NEWIPC: Final = 0x08000000
_CLONE_NEWPID: Final = 0x20000000
_CLONE_NEWNET: Final = 0x40000000
_SIOCSIFFLAGS: Final = 0x8914
_IFF_UP: Final = 1
_MS_RDONLY: Final = 1
_MS_NOSUID: Final = 2
_MS_NODEV: Final = 4
_MS_NOEXEC: Final = 8
_SHARED_MEMORY_BYTES: Final = 64 * 1024**2
_PROBE_FILES: Final = 100
_CAPABILITIES_VERSION: Final = 0x20080522
_LAST_CAPABILITY: Final = 63
_MAX_FDS: Final = 1 << 16


_SIGNAL_EXIT_BASE: Final = 128

LINUX: Final = sys.platform == "linux"

_libc = ctypes.CDLL(None, use_errno=True)
# The same library, called while holding the GIL: after a fork that Python does not know of, the GIL must be held.
_libc_with_gil = ctypes.PyDLL(None, use_errno=True)


def hide_memory() -> None:
    """Make this process's memory and environment in /proc unreadable for others of the same user, such as tools.

    There are no core dumps then, and debuggers need root."""
    if LINUX:
        _libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def adopt_orphans() -> None:
    """Become the parent of processes that tools leave running, so that they can be reaped."""
    if LINUX:
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def drop_privileges(become: Callable[[], None] = lambda: None) -> None:
    """Drop all capabilities for good; setuid programs do not bring them back. ``become`` runs when none can be gained
    any more and those that are there can still be used, to change the user.

    Root without capabilities cannot read the memory of processes that have them, such as the server."""
    if not LINUX:
        return
    _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    for capability in range(_LAST_CAPABILITY + 1):
        _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    become()
    _libc.capset(struct.pack("Ii", _CAPABILITIES_VERSION, 0), bytes(24))


def fork_in_namespaces(*, own_network: bool) -> int:
    """Like `os.fork`, but the child is process 1 of a new pid namespace and has new mount and IPC namespaces; with
    ``own_network`` also a new network namespace. Raises OSError if the kernel does not allow it.

    The child must call `enter_namespaces` and nothing else: Python does not know that it was forked.
    """
    flags = _CLONE_NEWPID | _CLONE_NEWNS | _CLONE_NEWIPC | signal.SIGCHLD
    if own_network:
        flags |= _CLONE_NEWNET
    number = syscall_number("clone")
    if number is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    pid: int = _libc_with_gil.syscall(*map(ctypes.c_long, (number, flags, 0, 0, 0, 0)))
    if pid < 0:
        _raise_errno()
    return pid


def enter_namespaces(tmp_bytes: int, *, own_network: bool, max_files: int = _PROBE_FILES) -> None:
    """Mount a new /tmp, /dev/shm and /dev/pts, drop the privileges, and return in process 2 of the namespace.

    Process 1 waits for it and exits with its code (see `decode_exit_code`); the kernel then kills all others.
    """
    _mount(b"proc", b"/proc", _MS_NODEV | _MS_RDONLY | _MS_NOEXEC)
    options = b"mode=0700,size=%d,nr_inodes=%d"
    _mount(b"tmpfs", b"/tmp", _MS_NODEV, options % (tmp_bytes, max_files))
    _mount(b"tmpfs", b"/dev/shm", _MS_NODEV, options % (_SHARED_MEMORY_BYTES, max_files))
    _mount(b"devpts", b"/dev/pts", _MS_NOEXEC, b"newinstance,ptmxmode=0666,mode=620")
    if own_network:
        _enable_loopback()
    drop_privileges()
    second = os.fork()
    if second == 0:
        return
    os.closerange(0, _MAX_FDS)  # who waits for the end of a stream waits for process 2
    ended, status = os.wait()
    while ended != second:  # another one, which lost its parent
        ended, status = os.wait()
    code = os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else _SIGNAL_EXIT_BASE - code)


def decode_exit_code(code: int) -> int:
    """The exit code of process 2, from that of process 1. Process 1 cannot die of a signal, so it reports one as
    shells do: 128 and the signal's number."""
    return code if code <= _SIGNAL_EXIT_BASE else _SIGNAL_EXIT_BASE - code


def _enable_loopback() -> None:
    """The loopback device of a new network namespace is down; programs that connect to themselves need it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", _IFF_UP))


def _mount(kind: bytes, target: bytes, flags: int, options: bytes | None = None) -> None:
    _check_result(_libc.mount(kind, target, kind, _MS_NOSUID | flags, options))


def set_limits(*, data_bytes: int, open_files: int, file_bytes: int) -> None:
    for kind, wanted in (
        (resource.RLIMIT_CORE, 0),
        # Private writable memory. Unlike the address space it does not count what threads and numerical libraries
        # reserve without using it.
        (resource.RLIMIT_DATA, data_bytes),
        (resource.RLIMIT_NOFILE, open_files),
        (resource.RLIMIT_FSIZE, file_bytes),
    ):
        _, hard = resource.getrlimit(kind)
        allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(kind, (allowed, allowed))


def _check_result(result: int) -> None:
    if result != 0:
        _raise_errno()


def _raise_errno() -> NoReturn:
    number = ctypes.get_errno()
    raise OSError(number, os.strerror(number))
