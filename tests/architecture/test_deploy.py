"""The examples in ``deploy/`` can be read by the programs that they are for, and name only settings that exist."""

import configparser
import re
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]  # its stubs are a package of their own

from holdfast.config import SPECS

DEPLOY = Path(__file__).parents[2] / "deploy"
UNITS = sorted(DEPLOY.glob("*.service"))

VARIABLE = re.compile(r"\bHOLDFAST_[A-Z_]+\b")
KNOWN = {variable for spec in SPECS.values() for variable in spec.variables}


def read_unit(path: Path) -> dict[str, list[tuple[str, str]]]:
    """The sections of a unit. A key such as ``Environment`` may occur again."""
    parser = configparser.RawConfigParser(strict=True, delimiters=("=",), comment_prefixes=("#",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # keys of systemd have capital letters
    # Numbered, because the parser refuses what is there twice.
    numbered = [
        re.sub(r"^(\w+)=", rf"\1.{number}=", line)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines())
    ]
    parser.read_string("\n".join(numbered))
    return {
        section: [(key.split(".")[0], value) for key, value in parser.items(section)]
        for section in parser.sections()
    }


def test_compose_starts_two_servers_with_the_same_settings_behind_a_proxy() -> None:
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
    services = compose["services"]
    assert {*services} == {"server-1", "server-2", "proxy", "postgres", "redis"}
    assert services["server-1"] == services["server-2"]
    settings = services["server-1"]["environment"]
    assert {"HOLDFAST_DATABASE_URL", "HOLDFAST_SECRET_KEY", "HOLDFAST_PASSWORD"} <= {*settings}
    assert "ports" not in services["postgres"]
    assert "ports" not in services["redis"]
    for name in ("server-1:8283", "server-2:8283"):
        assert name in (DEPLOY / "Caddyfile").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_a_unit_can_be_read(path: Path) -> None:
    unit = read_unit(path)
    assert {*unit} == {"Unit", "Service", "Install"}
    service = dict(unit["Service"])
    assert service["ExecStart"].endswith("/holdfast server")
    # The default of HOLDFAST_DRAIN_SECONDS is 10.
    assert int(service["TimeoutStopSec"]) > 10


@pytest.mark.parametrize("name", ["Caddyfile", "nginx.conf"])
def test_a_proxy_has_as_many_closing_brackets_as_opening_ones(name: str) -> None:
    text = (DEPLOY / name).read_text(encoding="utf-8")
    assert text.count("{") == text.count("}")


def test_nginx_passes_events_on_at_once_and_repeats_no_message() -> None:
    text = (DEPLOY / "nginx.conf").read_text(encoding="utf-8")
    assert "proxy_buffering off;" in text
    assert "proxy_next_upstream error timeout;" in text


@pytest.mark.parametrize("path", sorted(DEPLOY.iterdir()), ids=lambda path: path.name)
def test_the_examples_name_only_settings_that_exist(path: Path) -> None:
    assert {*VARIABLE.findall(path.read_text(encoding="utf-8"))} - KNOWN == set()
