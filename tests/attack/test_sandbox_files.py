"""Attacks of a tool on files: those of the server, those of the machine, and the sockets of other programs."""

import contextlib
import hashlib
import json
import os
import site
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from tests.support.sandbox_host import LEVELS, ROOT
from tests.support.server_process import ServerProcess
from tests.support.wire_server import connect_plainly

from holdfast.adapters.sandbox import landlock
from holdfast.adapters.sandbox.isolation import Isolation, isolation_problem
from holdfast.adapters.sandbox.syscall_filter import syscall_number

if TYPE_CHECKING:
    from tests.support.sandbox_host import Attacked, SandboxHost

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not landlock.is_supported(), reason="this kernel has no Landlock (Linux 5.13 and newer)"
    ),
]

TRY: Final = """
import ctypes, errno, os, pathlib, shutil, socket, stat, subprocess, sys, tempfile
libc = ctypes.CDLL(None, use_errno=True)
def tried(work):
    try: work()
    except OSError as error: return errno.errorcode[error.errno]
    return "done"
def xattr(path, name, *value):
    # Not os.setxattr: a name that the filter does not know may have been added to the kernel.
    if libc.setxattr(path.encode(), name, *value, len(value[0]), 0) != 0: raise OSError(ctypes.get_errno(), "")
"""
# What a refused attempt may say: forbidden, hidden, another file system, read-only, no such thing here.
REFUSALS: Final = {"EACCES", "EPERM", "ENOENT", "EXDEV", "EROFS", "ENOTSUP", "ENOSYS"}
# The filter pretends that these worked; whether they did is seen from outside.
MAY_PRETEND: Final = {"chmod", "chmod by its folder", "chmod without links", "utime"}


def facts(path: Path) -> list[object]:
    found = path.stat()
    names = {name: os.getxattr(path, name) for name in os.listxattr(path)}
    kept = [found.st_mode, found.st_uid, found.st_gid, found.st_mtime_ns, found.st_nlink]
    content = sorted(map(str, path.iterdir())) if path.is_dir() else path.read_bytes()
    return [*kept, names, content]


def test_the_database_cannot_be_touched(attacked: "Attacked") -> None:
    source = (
        TRY
        + """
def tool(database: str, home: str):
    at = lambda name: os.open(home, os.O_PATH)
    return {
        "read": tried(lambda: open(database, "rb")),
        "append": tried(lambda: open(database, "ab")),
        "overwrite": tried(lambda: open(database, "wb")),
        "truncate": tried(lambda: os.truncate(database, 0)),
        "truncate while reading": tried(lambda: os.open(database, os.O_RDONLY | os.O_TRUNC)),
        "chmod": tried(lambda: os.chmod(database, 0o666)),
        "chmod by its folder": tried(lambda: os.chmod("holdfast.db", 0o666, dir_fd=at(home))),
        "chmod without links": tried(lambda: os.chmod(home, 0o777)),
        "chown": tried(lambda: os.chown(database, os.getuid(), os.getgid())),
        "lchown": tried(lambda: os.lchown(home, os.getuid(), os.getgid())),
        "utime": tried(lambda: os.utime(database, (1, 1))),
        "utime now": tried(lambda: os.utime(database)),
        "setxattr": tried(lambda: xattr(database, b"user.x", b"x")),
        "rename": tried(lambda: os.rename(database, "stolen")),
        "rename over it": tried(lambda: (open("mine", "w"), os.rename("mine", database))),
        "rename beside it": tried(lambda: os.rename(database, database + "-wal")),
        "link": tried(lambda: os.link(database, "stolen")),
        "unlink": tried(lambda: os.unlink(database)),
        "new file": tried(lambda: open(home + "/new", "w")),
        "new folder": tried(lambda: os.mkdir(home + "/new")),
        "remove": tried(lambda: os.rmdir(home)),
        "move the home": tried(lambda: os.rename(home, home + "-2")),
        "list": tried(lambda: os.listdir(home) or os.stat(database)),
        "by a program": str(subprocess.run(["cat", database], capture_output=True).returncode),
    }
"""
    )
    host = attacked.host
    before = [facts(host.database), facts(host.home)]
    tried = host.run(attacked.level, source, database=str(host.database), home=str(host.home))
    assert [facts(host.database), facts(host.home)] == before
    assert tried.pop("by a program") == "1"
    done = {name for name, answer in tried.items() if answer == "done"}
    assert done <= MAY_PRETEND
    assert set(tried.values()) - {"done"} <= REFUSALS


def test_no_call_changes_mode_times_owner_or_attributes_of_the_database(
    attacked: "Attacked",
) -> None:
    """Each by its number: which of them the C library uses depends on its version."""
    source = (
        TRY
        + """
def tool(calls: dict, home: str):
    path, empty, name, value = b"%s/holdfast.db" % home.encode(), b"", b"user.x", b"x"
    times = (ctypes.c_long * 4)(1, 0, 1, 0)
    mine, here = (os.getuid(), os.getgid()), -100
    attributes = (ctypes.c_uint64 * 2)(ctypes.cast(value, ctypes.c_void_p).value, 1)
    flags = (ctypes.c_uint64 * 3)(0x80)
    try: opened = os.open(path, os.O_PATH)
    except OSError: opened = -1
    forms = {
        "chmod": [(path, 0o666)], "fchmod": [(opened, 0o666)], "fchmodat": [(here, path, 0o666)],
        "fchmodat2": [(here, path, 0o666, 0), (opened, empty, 0o666, 0x1000)],
        "utime": [(path, times)], "utimes": [(path, times)], "futimesat": [(here, path, times)],
        "utimensat": [(here, path, times, 0), (opened, empty, times, 0x1000), (opened, None, times, 0)],
        "chown": [(path, *mine)], "lchown": [(path, *mine)], "fchown": [(opened, *mine)],
        "fchownat": [(here, path, *mine, 0), (opened, empty, *mine, 0x1000)],
        "setxattr": [(path, name, value, 1, 0)], "lsetxattr": [(path, name, value, 1, 0)],
        "fsetxattr": [(opened, name, value, 1, 0)],
        "setxattrat": [(here, path, 0, name, attributes, 16), (opened, empty, 0x1000, name, attributes, 16)],
        "removexattr": [(path, name)], "lremovexattr": [(path, name)], "fremovexattr": [(opened, name)],
        "removexattrat": [(here, path, 0, name)], "file_setattr": [(here, path, flags, 24, 0)],
    }
    wide = lambda value: ctypes.c_long(value) if isinstance(value, int) else value
    for call, number in calls.items():
        for form in forms[call]: libc.syscall(*map(wide, (number, *form)))
    return sorted(forms)
"""
    )
    host = attacked.host
    with contextlib.suppress(OSError):  # this file system has no attributes
        os.setxattr(host.database, "user.x", b"y")
    before = facts(host.database)
    calls = {name: number for name in CHANGES if (number := syscall_number(name)) is not None}
    assert host.run(attacked.level, source, calls=calls, home=str(host.home)) == sorted(CHANGES)
    assert facts(host.database) == before


CHANGES: Final = (
    *("chmod", "fchmod", "fchmodat", "fchmodat2", "utime", "utimes", "futimesat", "utimensat"),
    *("chown", "lchown", "fchown", "fchownat", "setxattr", "lsetxattr", "fsetxattr", "setxattrat"),
    *("removexattr", "lremovexattr", "fremovexattr", "removexattrat", "file_setattr"),
)


@pytest.fixture
def visible_folder() -> Iterator[Path]:
    """A folder that tools can read at both levels, because it is in that of Python's packages."""
    if not os.access(sys.prefix, os.W_OK):
        pytest.skip("This user may not write to the folder of Python.")
    with tempfile.TemporaryDirectory(dir=sys.prefix) as folder:
        yield Path(folder)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("written", ["absolute", "relative"])
def test_a_database_outside_the_home_cannot_be_read(
    visible_folder: Path, level: str, written: str
) -> None:
    """Nor its log and its backups. As root the tools run as root too, so that they own the files."""
    if level == "isolated" and (problem := isolation_problem(Isolation(network=False))):
        pytest.skip(problem)
    database = visible_folder / "data" / "agents.db"
    database.parent.mkdir()
    backup = database.with_name("agents.db.before-0001.bak")
    backup.write_text("rows")
    beside = visible_folder / "beside"
    beside.write_text("text")
    path = os.path.relpath(database, ROOT) if written == "relative" else str(database)
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="holdfast-attack-") as home:
        server = ServerProcess.start(
            Path(home),
            HOLDFAST_DATABASE_URL=f"sqlite:///{path}",
            HOLDFAST_SANDBOX=level,
            HOLDFAST_SANDBOX_USER="root",
        )
        try:
            names = ("", "-wal", "-shm", ".lock")
            files = [*(f"{database}{name}" for name in names), str(backup)]
            assert all(Path(file).exists() for file in files)
            body = {"source_code": READ, "args": {"files": [*files, str(beside)]}}
            with connect_plainly(server.address) as http:
                answer = http.post("/v1/tools/run", json=body).json()
        finally:
            server.stop()
    *own, other = json.loads(answer["tool_return"])
    assert set(own) <= {"PermissionError", "FileNotFoundError"}
    assert other == "text"


READ: Final = '''
def read(files: list[str]) -> list[str]:
    """Read files.

    Args:
        files: Their paths.
    """
    found = []
    for path in files:
        try: found.append(open(path, errors="replace").read(4))
        except OSError as error: found.append(type(error).__name__)
    return found
'''


def test_nothing_of_the_machine_can_be_written(attacked: "Attacked") -> None:
    source = (
        TRY
        + """
def tool(files: list, folders: list):
    opened = {path: tried(lambda: os.open(path, os.O_WRONLY | os.O_APPEND)) for path in files}
    def make(path): open(path, "x").close(), os.unlink(path)
    made = {path: tried(lambda: make(path + "/holdfast-test")) for path in folders}
    return opened | made
"""
    )
    packages = [*site.getsitepackages(), sysconfig.get_path("purelib")]
    files = [
        *("/proc/sys/kernel/core_pattern", "/proc/sys/vm/drop_caches", "/proc/sysrq-trigger"),
        *(f"/proc/{attacked.host.pid}/{name}" for name in ("oom_score_adj", "comm", "mem")),
        *("/etc/passwd", "/etc/hosts", os.__file__, pytest.__file__, sys.executable),
        *("/sys/kernel/mm/transparent_hugepage/enabled", "/dev/kmsg", "/dev/mem"),
    ]
    folders = [*packages, "/", "/etc", "/usr/lib", "/tmp", "/var/tmp", "/sys", "/dev", "/dev/pts"]
    if attacked.level == "isolated":
        folders.remove("/tmp")  # its own
    digest = hashlib.sha256(Path(os.__file__).read_bytes()).hexdigest()
    answers = attacked.host.run(
        attacked.level, source, files=files, folders=list(dict.fromkeys(folders))
    )
    refusals = REFUSALS | {"ENXIO", "ENOTDIR", "ETXTBSY"}
    assert {path for path, answer in answers.items() if answer not in refusals} == set()
    assert hashlib.sha256(Path(os.__file__).read_bytes()).hexdigest() == digest


def test_no_socket_of_another_program_can_be_used(attacked: "Attacked") -> None:
    """Neither by its path nor by an abstract name. A datagram socket of a pair could send to any other."""
    source = (
        TRY
        + """
def tool(folder: str, name: str):
    def connect(kind, address): socket.socket(socket.AF_UNIX, kind).connect(address)
    def send(kind): socket.socketpair(socket.AF_UNIX, kind)[0].sendto(b"x", folder + "/datagram")
    return {
        "stream": tried(lambda: connect(socket.SOCK_STREAM, folder + "/stream")),
        "datagram": tried(lambda: connect(socket.SOCK_DGRAM, folder + "/datagram")),
        "abstract": tried(lambda: connect(socket.SOCK_STREAM, "\\0" + name)),
        "pair": tried(lambda: send(socket.SOCK_DGRAM)),
        "raw pair": tried(lambda: send(socket.SOCK_RAW)),
        "own pair": tried(socket.socketpair),
    }
"""
    )
    host = attacked.host
    names = {"folder": str(host.sockets), "name": f"holdfast-{host.folder.name}"}
    answers = host.run(attacked.level, source, **names)
    assert answers.pop("own pair") == "done"
    assert set(answers.values()) <= REFUSALS | {"ECONNREFUSED"}


def test_a_tool_works_in_its_own_folder_and_where_the_operator_allows_it(
    attacked: "Attacked",
) -> None:
    source = (
        TRY
        + """
def tool(shared: str):
    here = pathlib.Path.cwd()
    pathlib.Path("a/b").mkdir(parents=True)
    pathlib.Path("a/b/new").touch()
    pathlib.Path("a/b/new").write_text("text")
    os.chmod("a/b/new", 0o600)
    os.rename("a/b/new", "moved")
    os.link("moved", "linked")
    os.truncate("linked", 2)
    os.symlink("moved", "link")
    shutil.copytree("a", "copy")
    shutil.copy2("moved", "copy/moved")
    programs = [["cp", "-a", "copy", "copied"], ["tar", "cf", "t.tar", "copy"], ["touch", "copy/x", "y"],
                ["tar", "xf", "t.tar", "-C", "a"], ["mv", "a/copy", "b"], ["rm", "-r", "b"]]
    done = [subprocess.run(program, capture_output=True).stderr.decode() for program in programs]
    with tempfile.NamedTemporaryFile() as file: done.append(file.name.startswith(str(here)))
    pathlib.Path(shared, "from a tool").write_text("x")
    shutil.move("moved", shared + "/moved")
    pathlib.Path(shared, "moved").unlink()
    for device in ("/dev/null", "/dev/zero", "/dev/full"): os.close(os.open(device, os.O_WRONLY))
    subprocess.run("echo out > /dev/stdout; echo err > /dev/stderr", shell=True, check=True)
    return [done, sorted(os.listdir())]
"""
    )
    done, left = attacked.host.run(attacked.level, source, shared=str(attacked.host.shared))
    assert done == [""] * 6 + [True]
    assert left == ["a", "copied", "copy", "link", "linked", "t.tar", "y"]
    assert (attacked.host.shared / "from a tool").read_text() == "x"


def test_who_may_not_write_is_told_where_to_write(attacked: "Attacked") -> None:
    answer = attacked.host.call(attacked.level, "def tool(): open('/etc/holdfast-test', 'w')")
    assert answer["error"].endswith(
        "(The sandbox lets tools write only to their own folder, TMPDIR, and to what "
        "HOLDFAST_SANDBOX_WRITABLE names.)"
    )


def test_tools_of_root_are_another_user(host: "SandboxHost") -> None:
    source = "import os\ndef tool(): return [os.getresuid(), os.getresgid(), os.getgroups()]"
    users, groups, others = host.run("plain", source)
    expected = 65534 if host.folder.stat().st_uid == 0 else host.folder.stat().st_uid
    assert set(users) == {expected}
    assert others in ([], groups[:1])
