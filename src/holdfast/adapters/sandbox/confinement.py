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
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, NoReturn

_PR_SET_DUMPABLE: Final = 4
_PR_SET_SECCOMP: Final = 22
_PR_CAPBSET_DROP: Final = 24
_PR_SET_CHILD_SUBREAPER: Final = 36
_PR_SET_NO_NEW_PRIVS: Final = 38
_SECCOMP_MODE_FILTER: Final = 2
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


class _Syscalls(NamedTuple):
    """The numbers of system calls on one CPU architecture."""

    audit_arch: int
    clone: int
    # Leave the process group: setsid, setpgid.
    leave_group: tuple[int, ...]
    # Have a process id as first argument: kill, rt_sigqueueinfo, tgkill, rt_tgsigqueueinfo, prlimit64,
    # pidfd_open.
    reach_process: tuple[int, ...]
    # Has a thread id, which the filter cannot tell from those of the server: tkill.
    signal_thread: tuple[int, ...]
    # May make the kernel send signals later, depending on the command in the second argument: fcntl, ioctl.
    configure_signals: tuple[int, ...]
    # Create objects that outlive the call, or memory that is not counted: shmget, semget, msgget, mq_open,
    # add_key, request_key, keyctl, memfd_create.
    create_persistent: tuple[int, ...]


_SYSCALLS: Final = {
    "x86_64": _Syscalls(
        audit_arch=0xC000003E,
        clone=56,
        leave_group=(112, 109),
        reach_process=(62, 129, 234, 297, 302, 434),
        signal_thread=(200,),
        configure_signals=(72, 16),
        create_persistent=(29, 64, 68, 240, 248, 249, 250, 319),
    ),
    "aarch64": _Syscalls(
        audit_arch=0xC00000B7,
        clone=220,
        leave_group=(157, 154),
        reach_process=(129, 138, 131, 240, 261, 434),
        signal_thread=(130,),
        configure_signals=(25, 29),
        create_persistent=(194, 190, 186, 180, 217, 218, 219, 279),
    ),
}
# The same on all architectures. The first accepts a /proc folder as a process, so the filter cannot see its target.
_PIDFD_SEND_SIGNAL, _MEMFD_SECRET = 424, 447
# F_SETOWN, F_SETSIG, F_SETOWN_EX; FIOSETOWN, SIOCSPGRP.
_SIGNAL_COMMANDS: Final = (8, 10, 15, 0x8901, 0x8902)
_X32_BIT: Final = 0x40000000

# Instructions of the filter (linux/filter.h): load a word, jump, compare, return.
_LOAD, _JUMP, _IF_EQUAL, _IF_AT_LEAST, _RETURN = 0x20, 0x05, 0x15, 0x35, 0x06
_NUMBER_OFFSET, _ARCH_OFFSET, _FIRST_ARGUMENT_OFFSET, _SECOND_ARGUMENT_OFFSET = 0, 4, 16, 24
_ALLOW: Final = 0x7FFF0000
_RETURN_ERRNO: Final = 0x00050000

_SIGNAL_EXIT_BASE: Final = 128

LINUX: Final = sys.platform == "linux"

_libc = ctypes.CDLL(None, use_errno=True)
# The same library, called while holding the GIL: after a fork that Python does not know of, the GIL must be held.
_libc_with_gil = ctypes.PyDLL(None, use_errno=True)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))


def hide_memory() -> None:
    """Make this process's memory and environment in /proc unreadable for others of the same user, such as tools.

    There are no core dumps then, and debuggers need root."""
    if LINUX:
        _libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def adopt_orphans() -> None:
    """Become the parent of processes that tools leave running, so that they can be reaped."""
    if LINUX:
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def drop_privileges() -> None:
    """Drop all capabilities for good; setuid programs do not bring them back.

    Root without capabilities cannot read the memory of processes that have them, such as the server."""
    if not LINUX:
        return
    _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    for capability in range(_LAST_CAPABILITY + 1):
        _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    _libc.capset(struct.pack("Ii", _CAPABILITIES_VERSION, 0), bytes(24))


def fork_in_namespaces(*, own_network: bool) -> int:
    """Like `os.fork`, but the child is process 1 of a new pid namespace and has new mount and IPC namespaces; with
    ``own_network`` also a new network namespace. Raises OSError if the kernel does not allow it.

    The child must call `enter_namespaces` and nothing else: Python does not know that it was forked.
    """
    flags = _CLONE_NEWPID | _CLONE_NEWNS | _CLONE_NEWIPC | signal.SIGCHLD
    if own_network:
        flags |= _CLONE_NEWNET
    arguments = (_SYSCALLS[os.uname().machine].clone, flags, 0, 0, 0, 0)
    pid: int = _libc_with_gil.syscall(*map(ctypes.c_long, arguments))
    if pid < 0:
        _raise_errno()
    return pid


def enter_namespaces(tmp_bytes: int, *, own_network: bool, max_files: int = _PROBE_FILES) -> None:
    """Mount a new /tmp and /dev/shm, drop the privileges, and return in process 2 of the namespace.

    Process 1 waits for it and exits with its code (see `decode_exit_code`); the kernel then kills all others.
    """
    _mount(b"proc", b"/proc", _MS_RDONLY | _MS_NOEXEC)
    options = b"mode=0700,size=%d,nr_inodes=%d"
    _mount(b"tmpfs", b"/tmp", 0, options % (tmp_bytes, max_files))
    _mount(b"tmpfs", b"/dev/shm", 0, options % (_SHARED_MEMORY_BYTES, max_files))
    if own_network:
        _enable_loopback()
    drop_privileges()
    second = os.fork()
    if second == 0:
        return
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
    _check_result(_libc.mount(kind, target, kind, _MS_NOSUID | _MS_NODEV | flags, options))


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


def build_group_filter(protected: Iterable[int]) -> bytes | None:
    """A seccomp filter that keeps a process, and all that it starts, in its process group, so that one signal to the
    group reaches everything. It also refuses signals to the ``protected`` (pids; negative: groups; -1: all processes).

    Leaving the group reports success without doing it, so that programs that detach themselves go on. Calls that
    create something that outlives the group, or cannot be counted, fail as if the kernel did not have them (ENOSYS).
    None for architectures whose system calls are not in the table.
    """
    syscalls = _SYSCALLS.get(os.uname().machine)
    if not LINUX or syscalls is None:
        return None
    refused = _errno_result(errno.EPERM)
    code = [
        _instruction(_LOAD, _ARCH_OFFSET),
        *_return_unless(_IF_EQUAL, syscalls.audit_arch, _errno_result(errno.ENOSYS)),
        _instruction(_LOAD, _NUMBER_OFFSET),
        *_return_if(_IF_AT_LEAST, _X32_BIT, _errno_result(errno.ENOSYS)),
    ]
    for number in syscalls.leave_group:
        code += _return_if(_IF_EQUAL, number, _errno_result(0))
    for number in syscalls.signal_thread:
        code += _return_if(_IF_EQUAL, number, refused)
    for number in (*syscalls.create_persistent, _PIDFD_SEND_SIGNAL, _MEMFD_SECRET):
        code += _return_if(_IF_EQUAL, number, _errno_result(errno.ENOSYS))
    code += _refuse_arguments(syscalls.configure_signals, _SECOND_ARGUMENT_OFFSET, _SIGNAL_COMMANDS)
    code += _refuse_arguments(syscalls.reach_process, _FIRST_ARGUMENT_OFFSET, protected)
    return b"".join([*code, _instruction(_RETURN, _ALLOW)])


def install_filter(code: bytes) -> None:
    """Install the filter for good: it cannot be removed, and every child inherits it."""
    program = _Program(len(code) // 8, code)
    _check_result(_libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0))


def _instruction(code: int, value: int, *, then: int = 0, otherwise: int = 0) -> bytes:
    return struct.pack("HBBI", code, then, otherwise, value)


def _refuse_arguments(numbers: Sequence[int], offset: int, values: Iterable[int]) -> list[bytes]:
    """Instructions that refuse these calls if an argument has one of the values, and allow them otherwise. Other calls
    continue behind them."""
    found = [_instruction(_LOAD, offset)]
    for value in values:
        found += _return_if(_IF_EQUAL, value & 0xFFFFFFFF, _errno_result(errno.EPERM))
    found.append(_instruction(_RETURN, _ALLOW))
    chosen = [
        _instruction(_IF_EQUAL, number, then=len(numbers) - index)
        for index, number in enumerate(numbers)
    ]
    return [*chosen, _instruction(_JUMP, len(found)), *found]


def _return_if(test: int, value: int, answer: int) -> Sequence[bytes]:
    return _instruction(test, value, otherwise=1), _instruction(_RETURN, answer)


def _return_unless(test: int, value: int, answer: int) -> Sequence[bytes]:
    return _instruction(test, value, then=1), _instruction(_RETURN, answer)


def _errno_result(number: int) -> int:
    """The filter's result that fails the call with this errno; 0: the call does nothing and reports success."""
    return _RETURN_ERRNO | number


def _check_result(result: int) -> None:
    if result != 0:
        _raise_errno()


def _raise_errno() -> NoReturn:
    number = ctypes.get_errno()
    raise OSError(number, os.strerror(number))
