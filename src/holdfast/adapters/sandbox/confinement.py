"""What the kernel is asked to hold against a tool: its limits, its process group, its privileges.

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
_CAPABILITIES_VERSION: Final = 0x20080522
_LAST_CAPABILITY: Final = 63


class _Syscalls(NamedTuple):
    """The numbers of its system calls."""

    audit_arch: int
    clone: int
    # These leave the group: setsid, setpgid.
    leave_group: tuple[int, ...]
    # These name a process in their first argument: kill, rt_sigqueueinfo, tgkill, rt_tgsigqueueinfo, prlimit64,
    # pidfd_open.
    reach_process: tuple[int, ...]
    # This one names a thread, which we could not tell from the server's: tkill.
    signal_thread: tuple[int, ...]
    # These have the kernel send signals later, to whom their second argument's order says: fcntl, ioctl.
    configure_signals: tuple[int, ...]
    # These make what outlives the call or holds memory that nobody can count: shmget, semget, msgget, mq_open,
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
# The same on all machines. The first takes a folder in /proc for a process, so its target cannot be told.
_PIDFD_SEND_SIGNAL, _MEMFD_SECRET = 424, 447
# F_SETOWN, F_SETSIG, F_SETOWN_EX; FIOSETOWN, SIOCSPGRP.
_SIGNAL_COMMANDS: Final = (8, 10, 15, 0x8901, 0x8902)
_X32_BIT: Final = 0x40000000

# The filter's language (linux/filter.h): load a word, compare it, answer.
_LOAD, _JUMP, _IF_EQUAL, _IF_AT_LEAST, _RETURN = 0x20, 0x05, 0x15, 0x35, 0x06
_NUMBER_OFFSET, _ARCH_OFFSET, _FIRST_ARGUMENT_OFFSET, _SECOND_ARGUMENT_OFFSET = 0, 4, 16, 24
_ALLOW: Final = 0x7FFF0000
_RETURN_ERRNO: Final = 0x00050000

_SIGNAL_EXIT_BASE: Final = 128

LINUX: Final = sys.platform == "linux"

_libc = ctypes.CDLL(None, use_errno=True)
# The same, but Python's lock is kept meanwhile: a fork behind its back must not find it free.
_libc_with_gil = ctypes.PyDLL(None, use_errno=True)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))


def hide_memory() -> None:
    """Close this process's memory and environment in /proc to others of the same user, tools among them.

    Costs core dumps; debuggers need root."""
    if LINUX:
        _libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def adopt_orphans() -> None:
    """What tools leave behind becomes our child, so that it can be collected and is never a zombie of init."""
    if LINUX:
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def drop_privileges() -> None:
    """Give up what the user may do beyond owning files; programs with the setuid bit bring nothing back.

    Root without capabilities cannot look into processes that have them: the server's keys stay its own."""
    if not LINUX:
        return
    _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    for capability in range(_LAST_CAPABILITY + 1):
        _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    _libc.capset(struct.pack("Ii", _CAPABILITIES_VERSION, 0), bytes(24))


def fork_in_namespaces(*, own_network: bool) -> int:
    """As `os.fork`, but the child is the first process of a pid space and has mounts and System V's and POSIX's
    shared objects of its own; if wanted also a network, in which it is alone.

    It is to do nothing but `enter_namespaces`: Python does not know that it was forked. OSError if it is not allowed.
    """
    flags = _CLONE_NEWPID | _CLONE_NEWNS | _CLONE_NEWIPC | signal.SIGCHLD
    if own_network:
        flags |= _CLONE_NEWNET
    words = (_SYSCALLS[os.uname().machine].clone, flags, 0, 0, 0, 0)
    pid: int = _libc_with_gil.syscall(*map(ctypes.c_long, words))
    if pid < 0:
        _raise_errno()
    return pid


def enter_namespaces(tmp_bytes: int, *, own_network: bool) -> None:
    """Return in the second process of the space, which has a /tmp and a /dev/shm of its own and may mount no more.

    The first waits for it and ends as it does, see `exit_code_inside`; then the kernel ends all others.
    """
    _mount(b"proc", b"/proc", _MS_RDONLY | _MS_NOEXEC)
    _mount(b"tmpfs", b"/tmp", 0, b"mode=0700,size=%d" % tmp_bytes)
    _mount(b"tmpfs", b"/dev/shm", 0, b"mode=0700,size=%d" % _SHARED_MEMORY_BYTES)
    if own_network:
        _enable_loopback()
    drop_privileges()
    second = os.fork()
    if second == 0:
        return
    ended, status = os.wait()
    while ended != second:  # an orphan
        ended, status = os.wait()
    code = os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else _SIGNAL_EXIT_BASE - code)


def decode_exit_code(code: int) -> int:
    """The second's exit code by the first's: it cannot die of a signal as the second can, so it says the number as
    shells do."""
    return code if code <= _SIGNAL_EXIT_BASE else _SIGNAL_EXIT_BASE - code


def _enable_loopback() -> None:
    """A new network's is off; programs that talk to themselves need it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", _IFF_UP))


def _mount(kind: bytes, target: bytes, flags: int, options: bytes | None = None) -> None:
    _check_result(_libc.mount(kind, target, kind, _MS_NOSUID | _MS_NODEV | flags, options))


def set_limits(*, data_bytes: int, open_files: int, file_bytes: int) -> None:
    for what, most in (
        (resource.RLIMIT_CORE, 0),
        # Private memory that can be written: unlike the address space it does not count what threads and
        # numerical libraries only reserve.
        (resource.RLIMIT_DATA, data_bytes),
        (resource.RLIMIT_NOFILE, open_files),
        (resource.RLIMIT_FSIZE, file_bytes),
    ):
        _, hard = resource.getrlimit(what)
        allowed = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (allowed, allowed))


def build_group_filter(protected: Iterable[int]) -> bytes | None:
    """A filter that keeps whoever has it, and all it starts, in its process group, so that one signal to the
    group reaches everything; and refuses signals to the protected (pids; negative: groups, -1: everybody).

    Leaving the group looks as if it had worked: programs that detach themselves go on, in the group. What would
    outlast the group, or could not be counted, looks as if this kernel did not have it: programs know other ways.
    None for machines whose system calls we do not know.
    """
    machine = _SYSCALLS.get(os.uname().machine)
    if not LINUX or machine is None:
        return None
    refused = _errno_result(errno.EPERM)
    code = [
        _instruction(_LOAD, _ARCH_OFFSET),
        *_return_unless(_IF_EQUAL, machine.audit_arch, _errno_result(errno.ENOSYS)),
        _instruction(_LOAD, _NUMBER_OFFSET),
        *_return_if(_IF_AT_LEAST, _X32_BIT, _errno_result(errno.ENOSYS)),
    ]
    for number in machine.leave_group:
        code += _return_if(_IF_EQUAL, number, _errno_result(0))
    for number in machine.signal_thread:
        code += _return_if(_IF_EQUAL, number, refused)
    for number in (*machine.create_persistent, _PIDFD_SEND_SIGNAL, _MEMFD_SECRET):
        code += _return_if(_IF_EQUAL, number, _errno_result(errno.ENOSYS))
    code += _refuse_arguments(machine.configure_signals, _SECOND_ARGUMENT_OFFSET, _SIGNAL_COMMANDS)
    code += _refuse_arguments(machine.reach_process, _FIRST_ARGUMENT_OFFSET, protected)
    return b"".join([*code, _instruction(_RETURN, _ALLOW)])


def install_filter(code: bytes) -> None:
    """For good: a filter is never taken off, and every child inherits it."""
    program = _Program(len(code) // 8, code)
    _check_result(_libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0))


def _instruction(code: int, value: int, *, then: int = 0, otherwise: int = 0) -> bytes:
    return struct.pack("HBBI", code, then, otherwise, value)


def _refuse_arguments(numbers: Sequence[int], offset: int, values: Iterable[int]) -> list[bytes]:
    """An answer for these calls, by one of their arguments; all others go on behind it."""
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
    """0: nothing is done, and the caller is told that it was."""
    return _RETURN_ERRNO | number


def _check_result(result: int) -> None:
    if result != 0:
        _raise_errno()


def _raise_errno() -> NoReturn:
    number = ctypes.get_errno()
    raise OSError(number, os.strerror(number))
