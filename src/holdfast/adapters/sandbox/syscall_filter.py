"""The seccomp filter of a tool's process: which system calls are refused, which only pretend to work.

A rule is a set of calls, and instructions that look at its arguments and return the filter's answer. Runs in the sandbox's own
processes; imports only the standard library.
"""

import ctypes
import errno
import os
import struct
import sys
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

# The numbers of the system calls on x86-64 and ARM64; - where the architecture does not have the call. From 424 on
# the numbers are the same everywhere.
_TABLE: Final = """
clone 56 220              unshare 272 97            clone3 435 435            setns 308 268
mount 165 40              umount2 166 39            pivot_root 155 41         chroot 161 51
open_tree 428 428         move_mount 429 429        fsopen 430 430            fsconfig 431 431
fsmount 432 432           fspick 433 433            mount_setattr 442 442     open_tree_attr 467 467
io_uring_setup 425 425    io_uring_enter 426 426    io_uring_register 427 427 bpf 321 280
userfaultfd 323 282       perf_event_open 298 241   open_by_handle_at 304 265 prctl 157 167
add_key 248 217           request_key 249 218       keyctl 250 219            memfd_create 319 279
shmget 29 194             semget 64 190             msgget 68 186             mq_open 240 180
memfd_secret 447 447      ptrace 101 117            kcmp 312 272              process_mrelease 448 448
process_vm_readv 310 270  process_vm_writev 311 271 process_madvise 440 440   pidfd_getfd 438 438
kill 62 129               tkill 200 130             tgkill 234 131            rt_sigqueueinfo 129 138
rt_tgsigqueueinfo 297 240 pidfd_open 434 434        pidfd_send_signal 424 424 setsid 112 157
setpgid 109 154           fcntl 72 25               ioctl 16 29               get_robust_list 274 100
prlimit64 302 261         sched_setaffinity 203 122 sched_setscheduler 144 119 sched_setparam 142 118
sched_setattr 314 274     setpriority 141 140       ioprio_set 251 30         move_pages 279 239
migrate_pages 256 238     chmod 90 -                fchmod 91 52              fchmodat 268 53
fchmodat2 452 452         utime 132 -               utimes 235 -              futimesat 261 -
utimensat 280 88          chown 92 -                fchown 93 55              lchown 94 -
fchownat 260 54           setxattr 188 5            lsetxattr 189 6           fsetxattr 190 7
setxattrat 463 463        removexattr 197 14        lremovexattr 198 15       fremovexattr 199 16
removexattrat 466 466     file_setattr 469 469      socket 41 198             socketpair 53 199
open 2 -                  openat 257 56             openat2 437 437           truncate 76 45
shmat 30 196              shmctl 31 195             semop 65 193              semtimedop 220 192
semctl 66 191             msgsnd 69 189             msgrcv 70 188             msgctl 71 187
mq_unlink 241 181
"""
_ARCHITECTURES: Final = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
"""For each machine the kernel's name of the architecture, and its column in the table."""

_X32_BIT: Final = 0x40000000

# Leave the process group. Programs that detach themselves go on if it seems to work.
_PRETENDED: Final = ("setsid", "setpgid")
# Objects that outlive the call, also those of other programs; memory that is not counted; interfaces of the kernel that
# attackers like and tools do not need; calls that programs do without if the kernel is old. The target of
# pidfd_send_signal cannot be seen here, and neither can the flags of clone3.
_MISSING: Final = (
    *("shmget", "semget", "msgget", "mq_open", "add_key", "request_key", "keyctl"),
    *("shmat", "shmctl", "semop", "semtimedop", "semctl", "msgsnd", "msgrcv", "msgctl"),
    "mq_unlink",
    *("memfd_create", "memfd_secret", "pidfd_send_signal", "clone3"),
    *("io_uring_setup", "io_uring_enter", "io_uring_register"),
    *("bpf", "userfaultfd", "perf_event_open"),
)
# Namespaces, mounts, files without a path, other processes. The thread id of tkill may be one of the server.
_REFUSED: Final = (
    *("setns", "mount", "umount2", "pivot_root", "chroot", "open_tree", "open_tree_attr"),
    *("move_mount", "fsopen", "fsconfig", "fsmount", "fspick", "mount_setattr"),
    *("open_by_handle_at", "ptrace", "kcmp", "process_vm_readv", "process_vm_writev"),
    *("process_madvise", "process_mrelease", "pidfd_getfd", "tkill"),
)
_SIGNALLING: Final = ("kill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_open")
# Have a process or thread id as first argument, and change that process or read its addresses.
_ABOUT_PROCESS: Final = (
    *("prlimit64", "sched_setaffinity", "sched_setscheduler", "sched_setparam", "sched_setattr"),
    *("move_pages", "migrate_pages", "get_robust_list"),
)
# What Landlock does not check: modes, times, owners and attributes of files, also of those that are hidden.
_MODES: Final = ("chmod", "fchmod", "fchmodat", "fchmodat2")
_TIMES_OF_PATH: Final = ("utime", "utimes")
_TIMES_OF_PATH_OR_FD: Final = ("futimesat", "utimensat")
_FORK_SERVER_CALLS: Final = frozenset(
    (
        *(*_PRETENDED, *_SIGNALLING, *_ABOUT_PROCESS, *_MODES),
        *(*_TIMES_OF_PATH, *_TIMES_OF_PATH_OR_FD),
        *("setpriority", "ioprio_set", "clone", "mount"),
    )
)
"""What the fork server does itself, what depends on the process of the call, and what its kind decides."""
_PROGRAM_CALLS: Final = frozenset((*_TIMES_OF_PATH, *_TIMES_OF_PATH_OR_FD))
"""What programs may do and tools may not. npx holds its lock by setting the time of a file, and reads it back."""

_OWNERS: Final = ("chown", "fchown", "lchown", "fchownat")
_ATTRIBUTES: Final = (
    *("setxattr", "lsetxattr", "fsetxattr", "setxattrat", "file_setattr"),
    *("removexattr", "lremovexattr", "fremovexattr", "removexattrat"),
)

# CLONE_NEWNS, -CGROUP, -UTS, -IPC, -USER, -PID, -NET; and CLONE_NEWTIME, which for clone is part of a signal's number.
_NEW_NAMESPACES: Final = 0x7E020000
_NEW_TIME: Final = 0x80
# F_SETOWN, F_SETSIG, F_SETOWN_EX: the kernel sends a signal later.
_SIGNAL_COMMANDS: Final = (8, 10, 15)
# FIOSETOWN, SIOCSPGRP: the same. FS_IOC_SETFLAGS, FS_IOC_FSSETXATTR: change a file that is open for reading.
_REFUSED_IOCTLS: Final = (0x8901, 0x8902, 0x40086602, 0x401C5820)
_PR_SCHED_CORE: Final = 62
_PRIO_PROCESS, _IOPRIO_WHO_PROCESS = 0, 1
_AF_UNIX: Final = 1
_SOCKET_TYPE_MASK: Final = 0xF
# SOCK_STREAM, SOCK_SEQPACKET. A datagram socket of a pair can still send to any other by its path.
_PAIRED_TYPES: Final = (1, 5)
_O_ACCMODE, _O_TRUNC = 0x3, 0x200
_TRUNCATE_ABI: Final = 3
"""The version of Landlock from which on it checks truncation."""

# Instructions (linux/filter.h): load a word, and, jump, compare, return.
_LOAD, _AND, _JUMP, _RETURN = 0x20, 0x54, 0x05, 0x06
_IF_EQUAL, _IF_AT_LEAST, _IF_ANY_BIT = 0x15, 0x35, 0x45
_NUMBER_OFFSET, _ARCH_OFFSET, _ARGUMENTS_OFFSET = 0, 4, 16
_ALLOW: Final = 0x7FFF0000
_ERRNO: Final = 0x00050000

_OWN_PID: Final = 0x7FFFFFFF
"""Stands for the pid of the call's first process until the filter is installed; no process has it."""

_PR_SET_SECCOMP: Final = 22
_SECCOMP_MODE_FILTER: Final = 2

_Code = list[bytes]

_libc = ctypes.CDLL(None, use_errno=True)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))


class Guard(NamedTuple):
    """What a filter has to keep safe besides the process group."""

    protected: tuple[int, ...] = ()
    """Who may not be signalled: pids; negative: groups; -1: all processes."""
    files: bool = False
    """Whether files that tools must not change belong to their own user."""
    landlock_abi: int = _TRUNCATE_ABI


class Filters(NamedTuple):
    """Two programs, because installing one takes time for each of its rules, and most can be installed once."""

    fork_server: bytes
    """For the fork server, whose forks inherit it."""
    call: bytes
    """For each call: what the fork server itself does, and what depends on the call's process."""
    program: bytes
    """The same for a program of the operator."""


class _Rule(NamedTuple):
    names: frozenset[str]
    code: _Code


def syscall_number(name: str) -> int | None:
    """The number of a call of the table on this machine; None if the machine does not have it."""
    machine = _ARCHITECTURES.get(os.uname().machine)
    if machine is None:
        return None
    words = _TABLE.split()
    number = words[words.index(name) + 1 + machine[1]]
    return None if number == "-" else int(number)


def build_filters(guard: Guard) -> "Filters | None":
    """Filters that keep a process, and all that it starts, in its process group, in its namespaces and away from other
    processes. None on systems whose calls are not in the table."""
    if sys.platform != "linux" or os.uname().machine not in _ARCHITECTURES:
        return None
    rules = [*_rules(guard), *(_file_rules(guard.landlock_abi) if guard.files else ())]
    return Filters(
        fork_server=_assemble((rule.names - _FORK_SERVER_CALLS, rule.code) for rule in rules),
        call=_assemble((rule.names & _FORK_SERVER_CALLS, rule.code) for rule in rules),
        program=_assemble(
            (rule.names & (_FORK_SERVER_CALLS - _PROGRAM_CALLS), rule.code) for rule in rules
        ),
    )


def install_filter(code: bytes) -> None:
    """Install the filter for good: it cannot be removed, and every child inherits it. This process becomes the one
    whose id the rules know. Raises OSError if the kernel has no filters."""
    code = code.replace(struct.pack("=I", _OWN_PID), struct.pack("=I", os.getpid()))
    program = _Program(len(code) // 8, code)
    if _libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def refuse_sockets() -> None:
    """From now on this process, and all that it starts, can open no socket: it has no network. Nothing happens on systems
    whose calls are not in the table."""
    if sys.platform == "linux" and os.uname().machine in _ARCHITECTURES:
        rule = _rule(("socket",), _answer(errno.EACCES))
        install_filter(_assemble([(rule.names, rule.code)]))


def _rules(guard: Guard) -> Iterator[_Rule]:
    yield _rule(_PRETENDED, _answer(0))
    yield _rule(_MISSING, _answer(errno.ENOSYS))
    yield _rule(_REFUSED, _answer(errno.EPERM))
    yield _rule(_SIGNALLING, _refuse_values(0, guard.protected))
    yield _rule(_ABOUT_PROCESS, _allow_own_process(0))
    by_process = _return_unless_equal(0, _PRIO_PROCESS)
    yield _rule(("setpriority",), [*by_process, *_allow_own_process(1)])
    by_process = _return_unless_equal(0, _IOPRIO_WHO_PROCESS)
    yield _rule(("ioprio_set",), [*by_process, *_allow_own_process(1)])
    yield _rule(("clone",), _refuse_flags(0, _NEW_NAMESPACES))
    yield _rule(("unshare",), _refuse_flags(0, _NEW_NAMESPACES | _NEW_TIME))
    yield _rule(("fcntl",), _refuse_values(1, _SIGNAL_COMMANDS))
    yield _rule(("ioctl",), _refuse_values(1, _REFUSED_IOCTLS))
    yield _rule(("prctl",), _refuse_values(0, (_PR_SCHED_CORE,)))


def _file_rules(landlock_abi: int) -> Iterator[_Rule]:
    """A filter cannot see which file a call is about, so these refuse the calls for all files."""
    # Copying programs go on if these seem to work.
    yield _rule(_MODES, _answer(0))
    yield _rule(_TIMES_OF_PATH, _pretend_unless_null(1))
    has_path = [_load(1), _instruction(_IF_EQUAL, 0, otherwise=1), *_answer(0)]
    yield _rule(_TIMES_OF_PATH_OR_FD, [*has_path, *_pretend_unless_null(2)])
    yield _rule(_OWNERS, _answer(errno.EPERM))
    yield _rule(_ATTRIBUTES, _answer(errno.EOPNOTSUPP))
    yield _rule(("socket",), _refuse_values(0, (_AF_UNIX,)))
    yield _rule(("socketpair",), _allow_values(1, _PAIRED_TYPES, mask=_SOCKET_TYPE_MASK))
    if landlock_abi < _TRUNCATE_ABI:
        yield _rule(("truncate",), _answer(errno.EPERM))
        yield _rule(("openat2",), _answer(errno.ENOSYS))
        yield _rule(("open",), _refuse_values(1, (_O_TRUNC,), mask=_O_TRUNC | _O_ACCMODE))
        yield _rule(("openat",), _refuse_values(2, (_O_TRUNC,), mask=_O_TRUNC | _O_ACCMODE))


def _rule(names: Iterable[str], code: _Code) -> _Rule:
    return _Rule(frozenset(names), code)


def _assemble(rules: Iterable[tuple[AbstractSet[str], _Code]]) -> bytes:
    """A program: which rule is for the call, then the code of that rule. Calls without a rule are allowed."""
    architecture, _ = _ARCHITECTURES[os.uname().machine]
    missing = _answer(errno.ENOSYS)
    program = [
        _instruction(_LOAD, _ARCH_OFFSET),
        *(_instruction(_IF_EQUAL, architecture, then=1), *missing),
        _instruction(_LOAD, _NUMBER_OFFSET),
        *(_instruction(_IF_AT_LEAST, _X32_BIT, otherwise=1), *missing),
    ]
    for names, code in rules:
        found = [number for name in names if (number := syscall_number(name)) is not None]
        if found:
            program += [
                _instruction(_IF_EQUAL, number, then=len(found) - index)
                for index, number in enumerate(found)
            ]
            program += [_instruction(_JUMP, len(code)), *code]
    return b"".join([*program, _instruction(_RETURN, _ALLOW)])


def _answer(number: int) -> _Code:
    """Fail the call with this errno; 0: the call does nothing and reports success."""
    return [_instruction(_RETURN, _ERRNO | number)]


def _allow_own_process(argument: int) -> _Code:
    """0 means the process that calls."""
    return _allow_values(argument, (0, _OWN_PID))


def _allow_values(argument: int, values: Sequence[int], *, mask: int | None = None) -> _Code:
    return _compare(argument, values, mask, found=_ALLOW, otherwise=_ERRNO | errno.EPERM)


def _refuse_values(argument: int, values: Sequence[int], *, mask: int | None = None) -> _Code:
    return _compare(argument, values, mask, found=_ERRNO | errno.EPERM, otherwise=_ALLOW)


def _pretend_unless_null(times: int) -> _Code:
    """Who sets the time of a path to now expects an error if there is no such file, and creates it (``Path.touch``)."""
    return _compare(times, (0,), None, found=_ERRNO | errno.EPERM, otherwise=_ERRNO)


def _refuse_flags(argument: int, flags: int) -> _Code:
    refuse = _instruction(_RETURN, _ERRNO | errno.EPERM)
    test = _instruction(_IF_ANY_BIT, flags, otherwise=1)
    return [_load(argument), test, refuse, _instruction(_RETURN, _ALLOW)]


def _return_unless_equal(argument: int, value: int) -> _Code:
    """Refuse the call unless the argument is that; continue behind these instructions if it is."""
    refuse = _instruction(_RETURN, _ERRNO | errno.EPERM)
    return [_load(argument), _instruction(_IF_EQUAL, value, then=1), refuse]


def _compare(
    argument: int, values: Sequence[int], mask: int | None, *, found: int, otherwise: int
) -> _Code:
    code = [_load(argument)]
    if mask is not None:
        code.append(_instruction(_AND, mask))
    for value in values:
        code.append(_instruction(_IF_EQUAL, value & 0xFFFFFFFF, otherwise=1))
        code.append(_instruction(_RETURN, found))
    return [*code, _instruction(_RETURN, otherwise)]


def _load(argument: int) -> bytes:
    """Load the lower half of an argument; those that are looked at are 32 bits wide, or refused if they are more."""
    return _instruction(_LOAD, _ARGUMENTS_OFFSET + 8 * argument)


def _instruction(code: int, value: int, *, then: int = 0, otherwise: int = 0) -> bytes:
    return struct.pack("=HBBI", code, then, otherwise, value)
