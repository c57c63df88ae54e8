"""The operator's file of MCP servers: what people paste, and what is said if it cannot be used."""

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.config.mcp_file import McpFile, read_mcp_file
from holdfast.errors import SettingInvalid
from holdfast.ports.mcp import ConfiguredServer


def read(folder: Path, content: object, **environ: str) -> McpFile:
    path = folder / "mcp.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return read_mcp_file(path, environ)


def read_server(folder: Path, entry: dict[str, Any], **environ: str) -> ConfiguredServer:
    (server,) = read(folder, {"mcpServers": {"one": entry}}, **environ).servers.values()
    return server


def refusal(folder: Path, content: object, **environ: str) -> str:
    with pytest.raises(SettingInvalid) as caught:
        read(folder, content, **environ)
    text = str(caught.value)
    prefix = f"HOLDFAST_MCP_CONFIG: {folder / 'mcp.json'} "
    assert text.startswith(prefix)
    return text.removeprefix(prefix)


def refusal_of(folder: Path, entry: object, **environ: str) -> str:
    text = refusal(folder, {"mcpServers": {"one": entry}}, **environ)
    prefix = "cannot be used: the server 'one' "
    assert text.startswith(prefix), text
    return text.removeprefix(prefix)


def test_a_program_has_a_command_arguments_and_an_environment(tmp_path: Path) -> None:
    entry = {
        "command": "npx",
        "args": ["-y", "a server", 3000],
        "env": {"KEY": "{{ KEY | none }}", "PORT": 3000, "DEBUG": True},
    }
    assert read_server(tmp_path, entry) == ConfiguredServer(
        name="one",
        command="npx",
        args=("-y", "a server", "3000"),
        env={"KEY": "{{ KEY | none }}", "PORT": "3000", "DEBUG": "true"},
    )


@pytest.mark.parametrize("key", ["url", "serverUrl", "httpUrl"])
def test_a_server_on_the_network_has_a_url_and_headers(tmp_path: Path, key: str) -> None:
    entry = {key: "https://example.com/mcp", "headers": {"Authorization": "Bearer {{ KEY }}"}}
    assert read_server(tmp_path, entry) == ConfiguredServer(
        name="one",
        url="https://example.com/mcp",
        headers={"Authorization": "Bearer {{ KEY }}"},
    )


@pytest.mark.parametrize("key", ["type", "transport"])
@pytest.mark.parametrize(
    ("kind", "is_sse"),
    [("sse", True), ("http", False), ("streamable-http", False), ("streamableHttp", False)],
)
def test_the_type_of_a_url_says_how_it_is_used(
    tmp_path: Path, key: str, kind: str, is_sse: bool
) -> None:
    entry = {"url": "http://127.0.0.1:1/mcp", key: kind}
    assert read_server(tmp_path, entry).is_sse is is_sse


def test_servers_that_are_disabled_are_left_out(tmp_path: Path) -> None:
    """Whatever else they say."""
    servers = {"off": {"disabled": True, "env": {"KEY": "${NOT_SET}"}}, "on": {"command": "run"}}
    assert list(read(tmp_path, {"mcpServers": servers}).servers) == ["on"]


def test_what_is_not_known_is_not_used_and_said(tmp_path: Path) -> None:
    content = {
        "mcpServers": {"one": {"command": "run", "timeout": 5, "autoApprove": ["x"]}},
        "globalShortcut": "",
    }
    assert read(tmp_path, content).ignored == (
        "'globalShortcut' is not used.",
        "'autoApprove' of the server 'one' is not used.",
        "'timeout' of the server 'one' is not used.",
    )


def test_an_empty_file_of_servers_is_no_error(tmp_path: Path) -> None:
    assert read(tmp_path, {"mcpServers": {}}) == McpFile({})


def test_references_to_the_environment_are_filled_in(tmp_path: Path) -> None:
    entry = {
        "command": "${HOME_OF_SERVERS}/run",
        "args": ["--level=${LEVEL:-low}", "${env:LEVEL:-}", "$LEVEL"],
        "env": {"KEY": "Bearer ${KEY} {{ OTHER }}"},
    }
    environ = {"HOME_OF_SERVERS": "/srv", "KEY": "swordfish"}
    server = read_server(tmp_path, entry, **environ)
    assert (server.command, server.args) == ("/srv/run", ("--level=low", "", "$LEVEL"))
    assert server.env == {"KEY": "Bearer swordfish {{ OTHER }}"}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "is no JSON: Expecting property name enclosed in double quotes (line 1, column 2)."),
        ("[]", 'must have the form {"mcpServers": {"<name>": {…}}}.'),
        ({"servers": {}}, 'must have the form {"mcpServers": {"<name>": {…}}}.'),
        ({"mcpServers": []}, 'must have the form {"mcpServers": {"<name>": {…}}}.'),
        ('{"mcpServers": {"a": {}, "a": {}}}', "has 'a' twice in the same object."),
        ({"mcpServers": {" ": {}}}, "has a server without a name."),
    ],
)
def test_a_file_that_is_malformed_is_refused_with_what_is_wrong(
    tmp_path: Path, content: object, words: str
) -> None:
    assert refusal(tmp_path, content) == words


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("run", "must be an object."),
        ({}, "needs either a command or a url."),
        ({"command": "run", "url": "http://a"}, "needs either a command or a url."),
        ({"command": ["run"]}, "has a command that is not a text."),
        ({"command": "run", "args": "-y"}, "has args that are not a list of texts."),
        ({"command": "run", "args": [None]}, "has a value in args that is not a text."),
        ({"command": "run", "env": ["A=1"]}, "has env that are not an object of texts."),
        ({"command": "run", "env": {"A=": "1"}}, "has a name in env that no variable can have."),
        ({"url": "ftp://a"}, "has a url that is none: it must begin with http:// or https://."),
        ({"url": "https://"}, "has a url that is none: it must begin with http:// or https://."),
        (
            {"url": "https://me:swordfish@a/mcp"},
            "has a name or a password in its url; use headers instead.",
        ),
        (
            {"url": "https://swordfish@a/mcp"},
            "has a name or a password in its url; use headers instead.",
        ),
        ({"url": "http://a", "type": "grpc"}, "has the type 'grpc'; it may be stdio, http or sse."),
        ({"url": "http://a", "type": "stdio"}, "has the type 'stdio', which needs a command."),
        ({"command": "run", "type": "sse"}, "has the type 'sse', which needs a url."),
        (
            {"command": "run", "env": {"KEY": "${KEY}"}},
            "needs the environment variable KEY, which is not set.",
        ),
        (
            {"command": "run", "args": ["${input:key}"]},
            "has ${input:key} in args, which only an editor can fill in.",
        ),
    ],
)
def test_a_server_that_cannot_be_used_is_refused_with_its_name(
    tmp_path: Path, entry: object, words: str
) -> None:
    assert refusal_of(tmp_path, entry) == words


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingInvalid) as caught:
        read_mcp_file(tmp_path / "mcp.json", {})
    expected = (
        f"HOLDFAST_MCP_CONFIG: {tmp_path / 'mcp.json'} cannot be read: No such file or directory."
    )
    assert str(caught.value) == expected


def test_values_never_show(tmp_path: Path) -> None:
    server = read_server(tmp_path, {"command": "run", "env": {"KEY": "swordfish"}})
    assert "swordfish" not in repr(server)
    assert "swordfish" not in refusal_of(
        tmp_path, {"command": "run", "env": {"KEY": "swordfish", "OTHER": []}}
    )


@pytest.mark.parametrize(
    ("entry", "has_secrets"),
    [
        ({"command": "run", "args": ["--quiet"]}, False),
        ({"command": "run", "env": {"KEY": "swordfish"}}, True),
        ({"url": "http://a", "headers": {"X-Key": "swordfish"}}, True),
        ({"url": "http://a/s/swordfish"}, True),
        ({"url": "http://a/mcp?key=swordfish"}, True),
        ({"url": "http://a"}, False),
        ({"url": "http://a/mcp"}, False),
    ],
)
def test_it_is_known_whether_the_file_may_contain_secrets(
    tmp_path: Path, entry: dict[str, Any], has_secrets: bool
) -> None:
    assert read(tmp_path, {"mcpServers": {"one": entry}}).has_secrets is has_secrets


@pytest.mark.parametrize("name", ["a\0b", "a\nb", "\ud83d", "x" * 201])
def test_a_name_that_cannot_be_stored_or_shown_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(SettingInvalid, match="has a server whose name cannot be used"):
        read(tmp_path, {"mcpServers": {name: {"command": "run"}}})
