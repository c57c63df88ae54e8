"""Real proxies before real servers, as ``deploy/`` configures them. Whoever starts one stops it."""

import os
import re
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support.sandbox_host import ROOT
from tests.support.waiting import try_until_done

START_SECONDS = 20
# Debian installs nginx where only root looks.
_SEARCHED = f"{os.environ.get('PATH', '')}:/usr/sbin"
_DEPLOY = ROOT / "deploy"


class Proxy:
    """One program: how its configuration is read, and how it is started with it."""

    def __init__(
        self,
        name: str,
        configure: Callable[[Path, str, Sequence[str]], str],
        arguments: Callable[[Path], Sequence[str]],
    ) -> None:
        self.name = name
        self.problem = None if shutil.which(name, path=_SEARCHED) else f"{name} is not installed."
        self._configure = configure
        self._arguments = arguments

    @contextmanager
    def run(self, folder: Path, addresses: Sequence[str]) -> Iterator[str]:
        """The address of the proxy before these servers."""
        program = shutil.which(self.name, path=_SEARCHED)
        assert program is not None
        with _reserve_port() as port:
            listen = f"127.0.0.1:{port}"
            servers = [address.removeprefix("http://") for address in addresses]
            file = folder / f"{self.name}.conf"
            file.write_text(self._configure(folder, listen, servers), encoding="utf-8")
            log = folder / f"{self.name}.log"
            with log.open("wb") as stderr:
                process = subprocess.Popen(
                    [program, *self._arguments(file)], stderr=stderr, env={"HOME": str(folder)}
                )
            try:
                try_until_done(
                    lambda: _accepts(port) if process.poll() is None else False,
                    seconds=START_SECONDS,
                )
                assert process.poll() is None, log.read_text(encoding="utf-8")
                yield f"http://{listen}"
            finally:
                process.terminate()
                process.wait(START_SECONDS)


def _configure_nginx(folder: Path, listen: str, servers: Sequence[str]) -> str:
    text = (_DEPLOY / "nginx.conf").read_text(encoding="utf-8")
    text = re.sub(r"listen 443 ssl;", f"listen {listen} reuseport;", text)
    text = re.sub(r"\n *ssl_certificate.*", "", text)
    text = _replace_each(text, ("10.0.0.11:8283", "10.0.0.12:8283"), servers)
    paths = "".join(
        f"{name}_temp_path {folder}/{name};\n"
        for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    # Its workers may write to the folder only as the user that made it.
    user = "user root;\n" if os.geteuid() == 0 else ""
    return (
        f"{user}daemon off;\npid {folder}/nginx.pid;\nerror_log stderr;\nevents {{}}\n"
        f"http {{\naccess_log off;\n{paths}{text}}}\n"
    )


def _configure_caddy(folder: Path, listen: str, servers: Sequence[str]) -> str:
    text = (_DEPLOY / "Caddyfile").read_text(encoding="utf-8")
    text = text.replace(":8283 {", f"http://{listen} {{", 1)
    text = _replace_each(text, ("server-1:8283", "server-2:8283"), servers)
    return f"{{\n\tadmin off\n\tstorage file_system {folder}\n}}\n{text}"


def _replace_each(text: str, names: Sequence[str], servers: Sequence[str]) -> str:
    for name, server in zip(names, servers, strict=True):
        assert name in text
        text = text.replace(name, server)
    return text


NGINX = Proxy("nginx", _configure_nginx, lambda file: ["-c", str(file), "-p", str(file.parent)])
CADDY = Proxy(
    "caddy", _configure_caddy, lambda file: ["run", "--adapter", "caddyfile", "--config", str(file)]
)


@contextmanager
def _reserve_port() -> Iterator[int]:
    """A port that is ours. The socket never listens; the proxy shares the port with it."""
    with socket.socket() as reservation:
        reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        reservation.bind(("127.0.0.1", 0))
        yield reservation.getsockname()[1]


def _accepts(port: int) -> bool | None:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except ConnectionRefusedError:
        return None
    return True
