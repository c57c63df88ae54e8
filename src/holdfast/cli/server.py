"""``holdfast server``: starts the server and prints its address with an example to paste."""

import errno
from importlib.resources import files

import typer

from holdfast import __version__
from holdfast.assembly import serve
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
    try:
        serve(settings, on_ready=lambda address: typer.echo(greeting(settings, address)))
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
