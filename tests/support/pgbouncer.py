"""A real PgBouncer before the test's PostgreSQL, on a socket file in a folder of its own. Whoever starts one stops it."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from sqlalchemy import make_url
from tests.support.waiting import try_until_done

START_SECONDS = 20
# Debian installs it where only root looks.
_PROGRAM = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
_PORT = 6432
PGBOUNCER_PROBLEM = None if _PROGRAM else "PgBouncer is not installed."


class PgBouncer:
    """``url`` is the address of the database through it."""

    def __init__(self, url: str, *, pool_mode: str, folder: Path, **settings: str) -> None:
        address = make_url(url)
        self._sockets = str(address.query["host"])
        self._user = _user_of(Path(self._sockets))
        self._folder = folder
        through = address.set(host=None, port=_PORT, query={"host": str(folder)})
        self.url = through.render_as_string(hide_password=False)
        self._process: subprocess.Popen[bytes] | None = None
        self._configuration = folder / "pgbouncer.ini"
        server = f"host={self._sockets} port={address.port or 5432} user={address.username}"
        given = {"pool_mode": pool_mode} | settings
        self._configuration.write_text(
            f"[databases]\n* = {server}\n[pgbouncer]\nauth_type = any\nunix_socket_dir = {folder}\n"
            f"listen_port = {_PORT}\nlogfile = {folder}/log\n"
            + "".join(f"{name} = {value}\n" for name, value in given.items())
        )

    @property
    def log(self) -> str:
        return (self._folder / "log").read_text()

    def start(self) -> None:
        assert _PROGRAM is not None
        command = [_PROGRAM, "--quiet", str(self._configuration)]
        if os.geteuid() == 0:
            # It refuses to be root.
            shutil.chown(self._folder, self._user)
            command += ["--user", self._user]
        self._process = subprocess.Popen(command)
        try_until_done(self._answers, seconds=START_SECONDS)

    def stop(self) -> None:
        """End it as a power cut does: every connection through it breaks."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(START_SECONDS)
            self._process = None
            (self._folder / f".s.PGSQL.{_PORT}").unlink(missing_ok=True)

    def _answers(self) -> bool | None:
        assert self._process is not None
        assert self._process.poll() is None, self.log
        try:
            psycopg.connect(self.url).close()
        except psycopg.OperationalError:
            return None
        return True


@contextmanager
def run_pgbouncer(url: str, *, pool_mode: str, **settings: str) -> Iterator[PgBouncer]:
    with tempfile.TemporaryDirectory(prefix="holdfast-pgbouncer-") as folder:
        pgbouncer = PgBouncer(url, pool_mode=pool_mode, folder=Path(folder), **settings)
        try:
            pgbouncer.start()
            yield pgbouncer
        finally:
            pgbouncer.stop()


def _user_of(folder: Path) -> str:
    return pwd.getpwuid(folder.stat().st_uid).pw_name
