"""The command line: options and help texts. A command imports what is slow to import when it is called, so that
``--help`` and ``--version`` answer at once."""

import inspect
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast import __version__
from holdfast.cli import approvals, archives, mcp, runs, servers
from holdfast.config import (
    SPECS,
    URL_VARIABLE,
    Settings,
    default_text,
    has_option,
    is_switch,
    option_name,
)
from holdfast.errors import BackendError, CallerError, SettingInvalid

if TYPE_CHECKING:
    from holdfast.cli.api import Api

app = typer.Typer(
    help="A self-hosted server for stateful LLM agents whose runs can be trusted.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    # A plain traceback says more than a boxed one.
    pretty_exceptions_enable=False,
)

# Common to all commands that ask a running server.
_CLIENT_COMMAND_OPTIONS: Any = {
    "no_args_is_help": True,
    "rich_markup_mode": None,
    "epilog": "If the server has a password, put it into HOLDFAST_PASSWORD or LETTA_API_KEY.",
}

_runs = typer.Typer(
    help="See what runs there are, what they wait for and what became of them, and stop one: on a server that is running.",
    **_CLIENT_COMMAND_OPTIONS,
)
app.add_typer(_runs, name="runs")

_approvals = typer.Typer(
    help="See which tool calls wait for a person, and decide on them: on a server that is running.",
    **_CLIENT_COMMAND_OPTIONS,
)
app.add_typer(_approvals, name="approvals")

_servers = typer.Typer(
    help="See which servers share the database, who of them is alive, and how long the queue is: on one that is running.",
    **_CLIENT_COMMAND_OPTIONS,
)
app.add_typer(_servers, name="servers")

_archives = typer.Typer(
    help="See which archives there are, and change the model that makes their vectors: on a server that is running.",
    **_CLIENT_COMMAND_OPTIONS,
)
app.add_typer(_archives, name="archives")

_mcp = typer.Typer(
    help="See which MCP servers there are, log in to one, and read its tools again: on a server that is running.",
    **_CLIENT_COMMAND_OPTIONS,
)
app.add_typer(_mcp, name="mcp")

Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        envvar=URL_VARIABLE,
        help="The address of the server. Default: http://127.0.0.1:8283, or where HOLDFAST_HOST and HOLDFAST_PORT say.",
        show_default=False,
    ),
]
RunId = Annotated[str, typer.Argument(metavar="ID", help="The run's id.", show_default=False)]
RequestId = Annotated[
    str, typer.Argument(metavar="ID", help="The request's id, message-….", show_default=False)
]
Reason = Annotated[
    str | None, typer.Option(metavar="TEXT", help="Why; the model gets the reason of a denial.")
]
DecidedBy = Annotated[
    str | None, typer.Option("--by", metavar="NAME", help="Who decides; it is kept.")
]
McpName = Annotated[
    str,
    typer.Argument(metavar="NAME", help="The MCP server's name, or its id.", show_default=False),
]
Agent = Annotated[
    str | None, typer.Option("--agent", metavar="ID", help="Only what belongs to this agent.")
]
Limit = Annotated[int, typer.Option(metavar="N", min=1, max=1_000, help="How many at most.")]
Json = Annotated[bool, typer.Option("--json", help="Print what the server says, for scripts.")]

_SECRETS = ", ".join(about.variables[0] for about in SPECS.values() if about.secret)


def _setting_option(name: str) -> Any:
    """The option of a setting. ``config`` parses its value, as it parses the environment variable."""
    about = SPECS[name]
    text = f"{about.description} [{about.variables[0]}; default: {default_text(name)}]"
    return typer.Option(
        option_name(name),
        help=text.replace("`", ""),
        metavar=None if is_switch(name) else name.rsplit("_", 1)[-1].upper(),
        show_default=False,
    )


def _with_setting_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add an option for each setting that may have one; the command gets them as keyword arguments."""
    signature = inspect.signature(command)
    own = [item for item in signature.parameters.values() if item.kind is not item.VAR_KEYWORD]
    hints = {
        name: Annotated[(bool if is_switch(name) else str) | None, _setting_option(name)]
        for name in SPECS
        if has_option(name)
    }
    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=hint)
        for name, hint in hints.items()
    ]
    command.__signature__ = signature.replace(parameters=[*own, *options])  # type: ignore[attr-defined]  # read by typer, unknown to mypy
    command.__annotations__ = {**command.__annotations__, **hints}
    return command


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"holdfast {__version__}")
        raise typer.Exit


@app.callback()
def holdfast(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """A self-hosted server for stateful LLM agents whose runs can be trusted."""


@app.command(
    epilog=f"Secrets have no option, since a command line can be read by every user of the machine: {_SECRETS}."
)
@_with_setting_options
def server(**given: str | bool | None) -> None:
    """Start the server; it runs until it is stopped (Ctrl-C)."""
    with _exit_with_error_sentence():
        settings = Settings.read(os.environ, **given)
        from holdfast.cli.server import run  # noqa: PLC0415 - a second's worth of imports

        run(settings)


@app.command(
    epilog="The exit code is 0 if nothing is wrong, else 1. What it finds depends on the settings: give it those of the server."
)
@_with_setting_options
def doctor(
    *,
    check_providers: Annotated[
        bool,
        typer.Option("--check-providers", help="Also ask each configured provider for its models."),
    ] = False,
    **given: str | bool | None,
) -> None:
    """Say whether the server would work here: settings, home, database, providers, sandbox. Changes nothing."""
    from holdfast.cli import doctor as doctor_command  # noqa: PLC0415 - a second's worth of imports

    checks = doctor_command.run_checks(os.environ, given, check_providers=check_providers)
    typer.echo(doctor_command.render_report(checks))
    raise typer.Exit(doctor_command.exit_code(checks))


@_runs.command("list")
def list_runs(
    *,
    agent: Agent = None,
    status: Annotated[
        list[str] | None,
        typer.Option(
            "--status",
            metavar="STATUS",
            help="Only runs that are created (they wait for their turn), running, completed, failed or cancelled. May be given more than once.",
        ),
    ] = None,
    limit: Limit = 20,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """List runs, the newest first."""
    with _exit_with_error_sentence():
        typer.echo(
            runs.render_list(
                _connect(url), agent=agent, statuses=status or (), limit=limit, as_json=as_json
            )
        )


@_runs.command("show")
def show_run(*, run_id: RunId, url: Url = None, as_json: Json = False) -> None:
    """Show one run: how it stands or ended, what it waits for, what it cost, and who cancelled it."""
    with _exit_with_error_sentence():
        typer.echo(runs.render_one(_connect(url), run_id, as_json=as_json))


@_runs.command("explain")
def explain_run(*, run_id: RunId, url: Url = None, as_json: Json = False) -> None:
    """Say in a sentence what a run is doing or how it ended; what it waits for, and what would unblock it."""
    with _exit_with_error_sentence():
        typer.echo(runs.render_explanation(_connect(url), run_id, as_json=as_json))


@_runs.command("cancel")
def cancel_run(
    *,
    run_id: RunId,
    reason: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Why; it is kept with the run.")
    ] = None,
    rollback: Annotated[
        bool, typer.Option("--rollback", help="Let the conversation forget what the run said.")
    ] = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Stop a run, whatever it is doing. One that has ended stays as it is."""
    with _exit_with_error_sentence():
        typer.echo(
            runs.cancel(_connect(url), run_id, reason=reason, rollback=rollback, as_json=as_json)
        )


@_approvals.command("list")
def list_approvals(
    *,
    agent: Agent = None,
    tool: Annotated[
        str | None, typer.Option("--tool", metavar="NAME", help="Only calls of this tool.")
    ] = None,
    limit: Limit = 20,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """List what waits for a person, the longest first."""
    with _exit_with_error_sentence():
        typer.echo(
            approvals.render_list(
                _connect(url), agent=agent, tool=tool, limit=limit, as_json=as_json
            )
        )


@_approvals.command("show")
def show_approval(*, request_id: RequestId, url: Url = None, as_json: Json = False) -> None:
    """Show one request: its calls, and what was decided on them."""
    with _exit_with_error_sentence():
        typer.echo(approvals.render_one(_connect(url), request_id, as_json=as_json))


@_approvals.command("approve")
def approve(
    *,
    request_id: RequestId,
    by: DecidedBy = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Let every call of the request run; the agent goes on."""
    _decide(request_id, url, approve=True, by=by, as_json=as_json)


@_approvals.command("deny")
def deny(
    *,
    request_id: RequestId,
    reason: Reason = None,
    by: DecidedBy = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Refuse every call of the request; the agent gets the refusal, and goes on."""
    _decide(request_id, url, approve=False, reason=reason, by=by, as_json=as_json)


def _decide(
    request_id: str,
    url: str | None,
    *,
    approve: bool,
    reason: str | None = None,
    by: str | None,
    as_json: bool,
) -> None:
    with _exit_with_error_sentence():
        typer.echo(
            approvals.decide(
                _connect(url), request_id, approve=approve, reason=reason, by=by, as_json=as_json
            )
        )


@_servers.command("list")
def list_servers(*, url: Url = None, as_json: Json = False) -> None:
    """List the servers, the oldest first, also those that died within the last hour, and say how long the queue is."""
    with _exit_with_error_sentence():
        typer.echo(servers.render_list(_connect(url), as_json=as_json))


@_archives.command("list")
def list_archives(
    *, agent: Agent = None, limit: Limit = 20, url: Url = None, as_json: Json = False
) -> None:
    """List archives, the newest first, with the models that make their vectors."""
    with _exit_with_error_sentence():
        typer.echo(archives.render_list(_connect(url), agent=agent, limit=limit, as_json=as_json))


@_archives.command("reembed")
def reembed_archive(
    *,
    archive_id: Annotated[
        str, typer.Argument(metavar="ARCHIVE", help="The archive's id.", show_default=False)
    ],
    model: Annotated[
        str,
        typer.Option(metavar="HANDLE", help="The new embedding model.", show_default=False),
    ],
    skip_failed: Annotated[
        bool,
        typer.Option(
            "--skip-failed",
            help="Change the model although it cannot embed some passages; these are found by their words.",
        ),
    ] = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Change the model that makes the vectors of an archive. It is searched with the old vectors until all new ones are
    there. You can stop this at any time, and go on by running it again."""
    with _exit_with_error_sentence(), typer.progressbar(length=1, file=sys.stderr) as bar:

        def show(embedded: int, total: int) -> None:
            bar.length = max(total, 1)
            bar.update(embedded - bar.pos if total else 1)

        done = archives.change_model(
            _connect(url), archive_id, model, skip_failed=skip_failed, show=show, as_json=as_json
        )
    typer.echo(done)


@_mcp.command("list")
def list_mcp_servers(*, url: Url = None, as_json: Json = False) -> None:
    """List MCP servers, with the number of their tools and how your login stands."""
    with _exit_with_error_sentence():
        typer.echo(mcp.render_list(_connect(url), as_json=as_json))


@_mcp.command("tools")
def list_mcp_tools(*, name: McpName, url: Url = None, as_json: Json = False) -> None:
    """List the tools of an MCP server, as they were read last."""
    with _exit_with_error_sentence():
        typer.echo(mcp.render_tools(_connect(url), name, as_json=as_json))


@_mcp.command("refresh")
def refresh_mcp_server(*, name: McpName, url: Url = None, as_json: Json = False) -> None:
    """Read the tools of an MCP server again, and say what has changed."""
    with _exit_with_error_sentence():
        typer.echo(mcp.refresh(_connect(url), name, as_json=as_json))


@_mcp.command(
    "login",
    epilog="A client that you have registered there by hand may have a secret: put it into HOLDFAST_MCP_CLIENT_SECRET.",
)
def log_in_to_mcp_server(
    *,
    name: McpName,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the page in a browser here.")
    ] = True,
    callback: Annotated[
        str | None,
        typer.Option(
            "--callback",
            metavar="URL",
            help="Complete a login that has begun: the address of the last page, if the browser could not load it.",
        ),
    ] = None,
    client_id: Annotated[
        str | None,
        typer.Option(
            "--client-id",
            metavar="ID",
            help="The client that you have registered there by hand, where no client may register itself.",
        ),
    ] = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Log in to an MCP server: a page opens in the browser, where you allow the access. Ends when the server's tools are
    there, or after five minutes."""
    with _exit_with_error_sentence():
        api = _connect(url)
        if callback is not None:
            typer.echo(mcp.complete_login(api, name, callback, as_json=as_json))
            return
        with _exit_when_interrupted(f"holdfast: {mcp.describe_pending(name)}"):
            headers = mcp.client_headers(client_id, os.environ)
            done = mcp.log_in(
                api, name, headers=headers, opens_browser=browser, show=_show, as_json=as_json
            )
        typer.echo(done)


@_mcp.command("logout")
def log_out_of_mcp_server(*, name: McpName, url: Url = None) -> None:
    """Forget your login at an MCP server: its tokens are deleted here. The server itself is not told."""
    with _exit_with_error_sentence():
        typer.echo(mcp.log_out(_connect(url), name))


def _connect(url: str | None) -> "Api":
    from holdfast.cli.api import Api, default_url  # noqa: PLC0415 - --help needs no HTTP client

    return Api(url or default_url(os.environ), os.environ)


@contextmanager
def _exit_with_error_sentence() -> Iterator[None]:
    """Print an error that the operator can mend as one sentence, without a traceback, and exit."""
    try:
        yield
    except (BackendError, CallerError) as error:
        typer.echo(f"holdfast: {error}", err=True)
        raise typer.Exit(2 if isinstance(error, SettingInvalid) else 1) from None


@contextmanager
def _exit_when_interrupted(advice: str) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        typer.echo(advice, err=True)
        raise typer.Exit(130) from None


def _show(text: str) -> None:
    """What is happening; the standard output has the result alone."""
    typer.echo(text, err=True)
