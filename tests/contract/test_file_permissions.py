"""Only the server's own user may read the home folder and the files of a SQLite store."""

import logging
import os
import sqlite3
import stat
from pathlib import Path

import pytest

from holdfast.adapters.store import schema_upgrade
from holdfast.adapters.store.cipher import Cipher, load_home_cipher
from holdfast.adapters.store.doctor_checks import check_database_files, check_home, check_store
from holdfast.adapters.store.factory import open_store
from holdfast.adapters.store.file_permissions import make_home, restrict_to_owner
from holdfast.adapters.store.sqlite import SqliteStore
from holdfast.errors import CannotStart, SettingInvalid
from holdfast.ports.doctor_check import Verdict

NOBODY = 65534


@pytest.fixture(autouse=True)
def _open_umask() -> object:
    """The umask under which new files are readable by everyone."""
    before = os.umask(0)
    yield
    os.umask(before)


def modes(folder: Path) -> dict[str, str]:
    return {path.name: f"{stat.S_IMODE(path.stat().st_mode):o}" for path in folder.iterdir()}


def test_a_new_home_and_its_key_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    home = tmp_path / "home"
    make_home(home)
    load_home_cipher(home)
    assert modes(tmp_path) == {"home": "700"}
    assert modes(home) == {"secret.key": "600"}


async def test_all_files_of_a_new_store_are_readable_by_their_owner_only(
    tmp_path: Path, cipher: Cipher
) -> None:
    store = await SqliteStore.open(tmp_path / "holdfast.db", cipher=cipher)
    found = modes(tmp_path)
    await store.close()
    names = {"holdfast.db", "holdfast.db-wal", "holdfast.db-shm", "holdfast.db.lock"}
    assert found == dict.fromkeys(names, "600")


async def test_an_existing_home_is_restricted_when_the_store_is_opened(
    tmp_path: Path, cipher: Cipher
) -> None:
    home = tmp_path / "home"
    make_home(home)
    await (await SqliteStore.open(home / "holdfast.db", cipher=cipher)).close()
    load_home_cipher(home)
    (home / "holdfast.db.before-0001.bak").touch()
    for path in home.iterdir():
        path.chmod(0o644)
    home.chmod(0o755)

    make_home(home)
    load_home_cipher(home)
    await (await SqliteStore.open(home / "holdfast.db", cipher=cipher)).close()

    assert modes(tmp_path) == {"home": "700"}
    assert set(modes(home).values()) == {"600"}


async def test_a_backup_before_an_upgrade_is_readable_by_its_owner_only(
    tmp_path: Path, cipher: Cipher, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "holdfast.db"
    await (await SqliteStore.open(path, cipher=cipher)).close()
    with sqlite3.connect(path) as file:
        file.execute("UPDATE alembic_version SET version_num = '0000'")
    file.close()
    monkeypatch.setattr(schema_upgrade, "REVISIONS", ("0000", schema_upgrade.HEAD))
    monkeypatch.setattr(schema_upgrade, "run_migrations", lambda _: None)

    await (await SqliteStore.open(path, cipher=cipher)).close()

    assert modes(tmp_path)[f"holdfast.db.before-{schema_upgrade.HEAD}.bak"] == "600"


def test_a_shared_folder_keeps_its_permissions_and_there_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    with caplog.at_level(logging.WARNING):
        restrict_to_owner(shared)
    assert modes(tmp_path) == {"shared": "1777"}
    assert [record.message for record in caplog.records] == ["files.exposed"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_a_file_of_another_user_stays_as_it_is_and_there_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "holdfast.db"
    path.touch(0o644)
    os.chown(path, NOBODY, NOBODY)
    with caplog.at_level(logging.WARNING):
        restrict_to_owner(path)
    assert modes(tmp_path) == {"holdfast.db": "644"}
    (record,) = caplog.records
    assert (record.message, record.__dict__["path"]) == ("files.exposed", str(path))


def test_a_home_that_cannot_be_written_is_named_and_no_temporary_file() -> None:
    with pytest.raises(CannotStart, match=r"^Cannot use /proc as the home folder: "):
        make_home(Path("/proc"))


async def test_a_folder_outside_the_home_is_named_and_not_created(
    tmp_path: Path, cipher: Cipher
) -> None:
    folder = tmp_path / "nope" / "dir"
    url = f"sqlite:///{folder}/x.db"
    sentence = f"The folder {folder} of the database does not exist."
    with pytest.raises(SettingInvalid, match=sentence):
        await open_store(url, cipher=cipher, home=tmp_path / "home")
    found = await check_store(url, home=tmp_path / "home")
    assert found.verdict is Verdict.PROBLEM
    assert sentence in found.message
    assert modes(tmp_path) == {}


async def test_a_folder_inside_the_home_is_created_for_its_owner_only(
    tmp_path: Path, cipher: Cipher
) -> None:
    url = f"sqlite:///{tmp_path}/home/data/x.db"
    assert (await check_store(url, home=tmp_path / "home")).verdict is Verdict.GOOD
    await (await open_store(url, cipher=cipher, home=tmp_path / "home")).close()
    assert modes(tmp_path / "home") == {"data": "700"}


async def test_a_database_folder_that_cannot_be_written_is_named(cipher: Cipher) -> None:
    with pytest.raises(SettingInvalid, match=r"The folder /proc of the database cannot be written"):
        await open_store("sqlite:////proc/x.db", cipher=cipher)


async def test_the_doctor_tells_what_others_can_read(tmp_path: Path, cipher: Cipher) -> None:
    home, url = tmp_path / "home", f"sqlite:///{tmp_path}/home/holdfast.db"
    make_home(home)
    await (await open_store(url, cipher=cipher, home=home)).close()
    assert [found.verdict for found in check_home(home)] == [Verdict.GOOD]
    assert list(check_database_files(url)) == []
    home.chmod(0o755)
    (home / "holdfast.db").chmod(0o644)

    (_, exposed_home), (exposed_file,) = check_home(home), check_database_files(url)

    for found, path in ((exposed_home, home), (exposed_file, home / "holdfast.db")):
        assert found.verdict is Verdict.NOTE
        assert f"Other users of this machine can read {path}" in found.message
        assert "the next start of the server restricts it" in found.message


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_what_the_server_cannot_restrict_is_wrong(tmp_path: Path) -> None:
    home = tmp_path / "home"
    make_home(home)
    home.chmod(0o755)
    os.chown(home, NOBODY, NOBODY)
    _, found = check_home(home)
    assert found.verdict is Verdict.PROBLEM
    assert f"chmod go= {home}" in found.message


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
async def test_the_doctor_of_another_user_tells_what_it_cannot_read(
    tmp_path: Path, cipher: Cipher
) -> None:
    home, url = tmp_path / "home", f"sqlite:///{tmp_path}/home/holdfast.db"
    await (await open_store(url, cipher=cipher, home=home)).close()
    os.seteuid(NOBODY)
    try:
        found = [*check_home(home), await check_store(url, home=home), *check_database_files(url)]
    finally:
        os.seteuid(0)
    assert [check.verdict for check in found] == [Verdict.PROBLEM, Verdict.PROBLEM]
