"""Removing folders that were made to be hard to remove."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.adapters.sandbox.folder_removal import remove_folder

NOBODY = 65534


def nest(folder: Path, depth: int) -> None:
    """Make folders inside each other, deeper than any path can say."""
    parent = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("deeper", dir_fd=parent)
        inner = os.open("deeper", os.O_RDONLY, dir_fd=parent)
        os.close(parent)
        parent = inner
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=parent))
    os.close(parent)


def test_a_folder_of_any_depth_and_size_is_removed(tmp_path: Path) -> None:
    folder, outside = tmp_path / "folder", tmp_path / "outside"
    folder.mkdir()
    outside.mkdir()
    (outside / "kept").touch()
    nest(folder, 1200)
    (folder / "many").mkdir()
    for number in range(1500):
        (folder / "many" / str(number)).touch()
    # Names that the removal would like to use itself.
    for number in range(3):
        (folder / f".{number}").touch()
        (folder / "many" / f".{number}").mkdir()
        (folder / "many" / f".{number}" / "full").mkdir()
    (folder / ".3").mkdir()
    (folder / "link").symlink_to(outside)
    (folder / "many" / "link").symlink_to(outside, target_is_directory=True)
    os.mkfifo(folder / "pipe")

    assert remove_folder(str(folder))

    assert not folder.exists()
    assert (outside / "kept").exists()


def test_what_is_not_there_is_removed(tmp_path: Path) -> None:
    assert remove_folder(str(tmp_path / "nothing"))


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "target")
    assert not remove_folder(str(tmp_path / "link"))
    assert (tmp_path / "target").exists()


def test_the_owner_removes_what_he_has_made_unreadable(tmp_path: Path) -> None:
    for forbidden in ("a", "a/b", "a/b/c", "a/b/c/d"):
        (tmp_path / "folder" / forbidden).mkdir(parents=True)
        (tmp_path / "folder" / forbidden / "file").touch()
    for forbidden, mode in (("a/b/c/d", 0), ("a/b/c", 0o100), ("a/b", 0o500), ("a", 0o400)):
        (tmp_path / "folder" / forbidden).chmod(mode)
    (tmp_path / "folder").chmod(0o500)
    assert _remove_as_ordinary_user(tmp_path, tmp_path / "folder")
    assert not (tmp_path / "folder").exists()


def _remove_as_ordinary_user(parent: Path, folder: Path) -> bool:
    """Root may do everything, so a child process gives that up."""
    pid = os.fork()
    if pid == 0:
        try:
            if os.geteuid() == 0:
                subprocess.run(["chown", "-R", str(NOBODY), str(parent)], check=True)
                os.chdir(parent)
                os.setuid(NOBODY)
            os._exit(
                0 if remove_folder(folder.name if os.getuid() == NOBODY else str(folder)) else 1
            )
        finally:
            os._exit(2)
    return os.waitpid(pid, 0)[1] == 0


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="Only root can mount.")
def test_what_cannot_be_removed_does_not_hold_up_the_rest(tmp_path: Path) -> None:
    (tmp_path / "folder" / "busy" / "inner").mkdir(parents=True)
    (tmp_path / "folder" / "file").touch()
    script = 'mount -t tmpfs none "$0/busy/inner" && exec "$1" -c "$2" "$0"'
    code = (
        "import sys; from holdfast.adapters.sandbox.folder_removal import remove_folder\n"
        "sys.exit(remove_folder(sys.argv[1]))"
    )
    command = ["unshare", "-m", "sh", "-c", script, str(tmp_path / "folder"), sys.executable, code]
    completed = subprocess.run(command, capture_output=True, check=False)
    if b"unshare" in completed.stderr or b"mount" in completed.stderr:
        pytest.skip("Mounting is not allowed here.")
    assert completed.returncode == 0, completed.stderr
    assert not (tmp_path / "folder" / "file").exists()
