"""Settings: where a value comes from, what is accepted, what is never shown."""

from dataclasses import fields
from pathlib import Path

import pytest

from holdfast.config import SPECS, Settings, find_unknown_variables
from holdfast.config.specs import PROVIDER_SETTINGS
from holdfast.core.addresses import is_loopback
from holdfast.core.models import GUIDE_HANDLE
from holdfast.core.servers import Role
from holdfast.errors import SettingInvalid
from holdfast.ports.sandbox import SandboxLimits
from holdfast.ports.services import Limits


def test_without_a_word_from_the_operator_the_server_is_local_and_keeps_a_file_at_home() -> None:
    settings = Settings.read({})

    assert (settings.host, settings.port) == ("127.0.0.1", 8283)
    assert settings.home == Path.home() / ".holdfast"
    assert settings.database_url == f"sqlite:///{Path.home()}/.holdfast/holdfast.db"
    assert settings.password is None
    assert settings.limits == Limits()


def test_every_setting_is_described_and_has_a_variable_of_its_own() -> None:
    variables = [name for about in SPECS.values() for name in about.variables]

    own = [name for name in SPECS if name not in PROVIDER_SETTINGS]
    assert {*own, "providers"} == {item.name for item in fields(Settings)}
    assert all(about.description and about.variables for about in SPECS.values())
    assert len(variables) == len(set(variables))


def test_an_option_is_stronger_than_a_variable_and_a_variable_than_the_default() -> None:
    environ = {"HOLDFAST_PORT": "9000", "HOLDFAST_LOG_LEVEL": "debug"}

    settings = Settings.read(environ, port="9001", log_level=None)

    assert settings.port == 9001
    assert settings.log_level == "debug"


def test_an_empty_variable_is_as_good_as_none() -> None:
    settings = Settings.read({"HOLDFAST_PORT": "", "HOLDFAST_PASSWORD": ""})

    assert settings.port == 8283
    assert settings.password is None


def test_the_database_file_is_in_the_home_that_was_chosen(tmp_path: Path) -> None:
    assert Settings.read({}, home=tmp_path).database_url == f"sqlite:///{tmp_path}/holdfast.db"


def test_a_home_is_made_absolute_so_that_it_stays_the_same_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))

    assert Settings.read({"HOLDFAST_HOME": "here"}).home == tmp_path / "here"
    assert Settings.read({"HOLDFAST_HOME": "~/there"}).home == tmp_path / "there"


def test_the_password_variable_of_the_retired_server_is_accepted_and_ours_wins() -> None:
    theirs = {"LETTA_SERVER_PASSWORD": "old"}

    assert Settings.read(theirs).password == "old"
    assert Settings.read({**theirs, "HOLDFAST_PASSWORD": "new"}).password == "new"


def test_the_guide_is_the_default_model_until_a_provider_has_a_key() -> None:
    assert Settings.read({}).default_model == GUIDE_HANDLE
    assert Settings.read({"OPENAI_API_KEY": "k"}).default_model is None
    assert Settings.read({"ANTHROPIC_API_KEY": "k"}).default_model is None
    chosen = {"ANTHROPIC_API_KEY": "k", "HOLDFAST_DEFAULT_MODEL": "anthropic/claude"}
    assert Settings.read(chosen).default_model == "anthropic/claude"


@pytest.mark.parametrize(
    ("variable", "text", "accepted"),
    [
        ("HOLDFAST_PORT", "http", "a number from 0 to 65535"),
        ("HOLDFAST_PORT", "65536", "a number from 0 to 65535"),
        ("HOLDFAST_PORT", "-1", "a number from 0 to 65535"),
        ("HOLDFAST_BUSY_WAIT_SECONDS", "nan", "a number of seconds, 0 or more"),
        ("HOLDFAST_TOOL_TIMEOUT_SECONDS", "inf", "a number of seconds, 0 or more"),
        ("HOLDFAST_TOOL_TIMEOUT_SECONDS", "-3", "a number of seconds, 0 or more"),
        ("HOLDFAST_MAX_RECOVERIES", "1.5", "a number from 0 to 1000"),
        ("HOLDFAST_MAX_BODY_BYTES", "32MB", "a number of bytes, 1 or more"),
        ("HOLDFAST_ROLE", "boss", "one of all, api, worker"),
        ("HOLDFAST_PROCESSES", "0", "a number from 1 to 64"),
        ("HOLDFAST_PROCESSES", "65", "a number from 1 to 64"),
        ("HOLDFAST_MAX_RUNS", "0", "a number from 1 to 100000"),
        ("HOLDFAST_LEASE_SECONDS", "1.9", "a number of seconds from 2 to 3600"),
        ("HOLDFAST_LEASE_SECONDS", "3601", "a number of seconds from 2 to 3600"),
        ("HOLDFAST_INSECURE", "maybe", "true or false"),
        ("HOLDFAST_LOG_LEVEL", "loud", "one of critical, error, warning, info, debug"),
        ("HOLDFAST_DEFAULT_MODEL", "gpt-4o", "a handle such as openai/gpt-4o-mini"),
        ("HOLDFAST_DATABASE_URL", "mysql://here/x", "sqlite:///<path> or postgresql://…"),
        ("HOLDFAST_DATABASE_URL", "sqlite:///:memory:", "sqlite:///<path> or postgresql://…"),
        ("HOLDFAST_DATABASE_URL", "holdfast.db", "sqlite:///<path> or postgresql://…"),
        ("HOLDFAST_LISTEN_URL", "sqlite:///holdfast.db", "postgresql://…"),
        ("OPENAI_BASE_URL", "localhost:8000", "an address that begins with http:// or https://"),
    ],
)
def test_a_bad_value_is_refused_with_its_variable_itself_and_what_is_accepted(
    variable: str, text: str, accepted: str
) -> None:
    with pytest.raises(SettingInvalid) as refused:
        Settings.read({variable: text})

    assert str(refused.value) == f"{variable} is {text!r}; it must be {accepted}."


def test_a_bad_option_is_named_as_it_was_given() -> None:
    with pytest.raises(SettingInvalid, match=r"^--max-body-bytes is 'much'"):
        Settings.read({}, max_body_bytes="much")


def test_an_option_that_is_no_setting_is_a_mistake_of_the_code() -> None:
    with pytest.raises(TypeError, match="prot"):
        Settings.read({}, prot=1)


@pytest.mark.parametrize("word", ["1", "true", "YES"])
def test_a_switch_understands_the_usual_words(word: str) -> None:
    assert Settings.read({"HOLDFAST_INSECURE": word}).insecure is True


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.7", "agents.example.org", ""])
def test_other_than_loopback_needs_a_password_or_an_explicit_word(host: str) -> None:
    with pytest.raises(SettingInvalid, match=r"Set HOLDFAST_PASSWORD, or .* add --insecure"):
        Settings.read({}, host=host)

    assert Settings.read({"HOLDFAST_PASSWORD": "p"}, host=host).host == host
    assert Settings.read({}, host=host, insecure=True).host == host


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_loopback_needs_no_password(host: str) -> None:
    assert is_loopback(host)
    assert Settings.read({}, host=host).host == host


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"role": "api"}, "the role api"),
        ({"role": "worker"}, "the role worker"),
        ({"processes": "2"}, "2 processes"),
    ],
)
def test_sqlite_is_for_one_process_and_the_refusal_says_what_is_for_several(
    given: dict[str, str], named: str
) -> None:
    with pytest.raises(SettingInvalid) as refused:
        Settings.read({}, **given)

    assert str(refused.value).startswith("SQLite is for one process")
    assert named in str(refused.value)
    assert "HOLDFAST_DATABASE_URL=postgresql://…" in str(refused.value)
    assert Settings.read({}, database_url="postgresql://me@host/name", **given)


def test_a_server_does_everything_in_one_process_unless_it_is_asked_for_something_else() -> None:
    settings = Settings.read({})
    assert (settings.role, settings.processes, settings.lease_seconds) == (Role.ALL, 1, 10.0)

    chosen = {
        "HOLDFAST_DATABASE_URL": "postgresql://me@host/name",
        "HOLDFAST_ROLE": "Worker",
        "HOLDFAST_PROCESSES": "4",
        "HOLDFAST_MAX_RUNS": "7",
        "HOLDFAST_LEASE_SECONDS": "2.5",
    }
    settings = Settings.read(chosen)
    assert (settings.role, settings.processes, settings.lease_seconds) == (Role.WORKER, 4, 2.5)
    assert settings.limits.max_runs == 7


def test_no_secret_is_shown() -> None:
    secret = "hunter2"
    variables = {about.variables[0]: secret for about in SPECS.values() if about.secret}
    database = f"postgresql://me:{secret}@host/name"

    settings = Settings.read(variables, database_url=database, listen_url=database)
    assert secret not in repr(settings)


def test_the_passwords_in_addresses_are_secrets() -> None:
    settings = Settings.read(
        {},
        database_url="postgresql://me:first@host/name",
        listen_url="postgresql://me:sec%6Fnd@host/name",
        redis_url="redis://:third@host",
    )
    assert {"first", "sec%6Fnd", "second", "third"} <= set(settings.secrets)


def test_a_refused_address_is_shown_without_its_password() -> None:
    with pytest.raises(SettingInvalid) as refused:
        Settings.read({"HOLDFAST_DATABASE_URL": "mysql://me:hunt@er2@host/name"})

    assert "er2" not in str(refused.value)
    assert "@host/name" in str(refused.value)


def test_without_a_word_from_the_operator_tools_are_plain_and_have_the_usual_limits() -> None:
    settings = Settings.read({})

    assert (settings.sandbox, settings.sandbox_network) == ("plain", False)
    assert settings.sandbox_limits == SandboxLimits()


def test_limits_of_tools_are_those_that_were_chosen() -> None:
    chosen = {
        "HOLDFAST_TOOL_MEMORY_BYTES": "134217728",
        "HOLDFAST_TOOL_PROCESSES": "2",
        "HOLDFAST_TOOL_OPEN_FILES": "33",
        "HOLDFAST_TOOL_FILE_BYTES": "4",
        "HOLDFAST_TOOL_OUTPUT_BYTES": "5",
        "HOLDFAST_TOOL_FOLDER_BYTES": "6",
    }
    assert Settings.read(chosen).sandbox_limits == SandboxLimits(
        memory_bytes=134217728,
        processes=2,
        open_files=33,
        file_bytes=4,
        output_bytes=5,
        folder_bytes=6,
    )


def test_limits_of_documents_are_those_that_were_chosen() -> None:
    assert Settings.read({}).document_limits == SandboxLimits(file_bytes=100 * 1024**2)
    # A tool's limits are not a document's.
    chosen = {
        "HOLDFAST_TOOL_MEMORY_BYTES": "134217728",
        "HOLDFAST_DOCUMENT_MEMORY_BYTES": "268435456",
        "HOLDFAST_DOCUMENT_TEXT_BYTES": "2048",
        "HOLDFAST_DOCUMENT_SECONDS": "5.5",
    }
    settings = Settings.read(chosen)
    assert settings.document_limits == SandboxLimits(memory_bytes=268435456, file_bytes=2048)
    assert settings.document_seconds == 5.5


def test_all_problems_are_found_and_not_only_the_first() -> None:
    bad = {"HOLDFAST_PORT": "x", "HOLDFAST_SANDBOX": "steel"}

    assert Settings.find_problems(bad) == [
        "HOLDFAST_PORT is 'x'; it must be a number from 0 to 65535.",
        "HOLDFAST_SANDBOX is 'steel'; it must be one of plain, isolated.",
    ]
    assert Settings.find_problems({"HOLDFAST_PORT": "1"}, port="x") == [
        "--port is 'x'; it must be a number from 0 to 65535."
    ]
    (open_door,) = Settings.find_problems({"HOLDFAST_HOST": "0.0.0.0"})
    assert "without a password" in open_door
    assert Settings.find_problems({}) == []


def test_variables_that_only_look_like_settings_are_found() -> None:
    environ = {"HOLDFAST_PROT": "1", "HOLDFAST_PORT": "1", "HOLDFAST_URL": "x", "PATH": "x"}

    assert find_unknown_variables(environ) == ["HOLDFAST_PROT"]
