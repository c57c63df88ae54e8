"""``holdfast server``: starts the server and prints its address with an example to paste."""

import errno
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.resources import files

import typer

from holdfast import __version__, logs
from holdfast.assembly import load_libraries, open_socket, prepare_process, serve
from holdfast.cli.supervisor import Supervisor
from holdfast.config import Settings
from holdfast.errors import CannotStart

EXAMPLE = files("holdfast.cli").joinpath("example.py.txt").read_text(encoding="utf-8")
EXAMPLE_ADDRESS = "http://127.0.0.1:8283"

_LISTEN_ERRORS = {
    errno.EADDRINUSE: "another program listens there. Stop it, or choose another port with --port.",
    errno.EADDRNOTAVAIL: "this machine does not have that address. Choose another with --host.",
    errno.EACCES: "you may not use that port. Choose one above 1023 with --port.",
}


def run(settings: Settings) -> None:
    """Serve until stopped. Raises BackendError, with a sentence for the operator, if it cannot start."""

    def greet(address: str) -> None:
        typer.echo(greeting(settings, address))

    if settings.processes == 1:
        _serve(settings, greet)
    elif not _supervise(settings, greet):
        raise typer.Exit(1)


def _supervise(settings: Settings, on_ready: Callable[[str], None]) -> bool:
    """Serve by several processes on one socket; returns whether all of them ended well."""
    prepare_process(settings)
    with _explain_os_errors(settings), open_socket(settings) as listener:
        load_libraries(settings)

        def serve_in_process(report_ready: Callable[[str], None]) -> None:
            logs.bind(pid=str(os.getpid()))
            _serve(settings, report_ready, listener)

        # When the last process has closed it too, nobody waits in its queue for an answer.
        return Supervisor(
            serve_in_process, settings.processes, on_ready=on_ready, on_stop=listener.close
        ).serve()


def _serve(
    settings: Settings,
    on_ready: Callable[[str], None],
    listener: socket.socket | None = None,
) -> None:
    with _explain_os_errors(settings):
        serve(settings, on_ready, listener)


@contextmanager
def _explain_os_errors(settings: Settings) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CannotStart(_explain_os_error(settings, error)) from error


def _explain_os_error(settings: Settings, error: OSError) -> str:
    # An error about a file names the file; an error about a socket does not.
    if error.filename is not None:
        return f"Cannot use {error.filename}: {error.strerror}."
    reason = _LISTEN_ERRORS.get(error.errno or 0, f"{error.strerror or error}.")
    return f"Cannot listen on {settings.host}, port {settings.port}: {reason}"


def greeting(settings: Settings, address: str) -> str:
    # A client cannot connect to a wildcard address.
    reachable = address.replace("//0.0.0.0", "//127.0.0.1").replace("//[::]", "//[::1]")
    password = (
        "The server has a password: put it into the SDK's variable LETTA_API_KEY first.\n"
        if settings.password
        else ""
    )
    example = EXAMPLE.replace(EXAMPLE_ADDRESS, reachable)
    return (
        f"Holdfast {__version__} listens on {address} with its home in {settings.home}\n"
        f"The API's pages: {reachable}/docs. Stop with Ctrl-C.\n{password}"
        f"\nTry it: pip install letta-client, then run this Python, which needs no key:\n\n{example}"
    )
