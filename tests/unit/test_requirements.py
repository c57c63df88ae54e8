"""Which pip requirements a tool may have, and how they are normalized."""

from typing import Any

import pytest

from holdfast.core.requirements import MAX_REQUIREMENTS, parse_pip_requirements, refuse_npm
from holdfast.errors import InvalidArgument


@pytest.mark.parametrize(
    ("name", "version", "line"),
    [
        ("requests", None, "requests"),
        ("requests", "", "requests"),
        ("Requests", "2", "requests==2"),
        ("ruamel.yaml", "0.18.6", "ruamel-yaml==0.18.6"),
        ("zope_interface", ">= 5, <6", "zope-interface<6,>=5"),
        ("torch", "2.1+cpu", "torch==2.1+cpu"),
        ("httpx[http2, Socks]", "~=0.27", "httpx[http2,socks]~=0.27"),
        ("numpy", "1.*", "numpy==1.*"),
    ],
)
def test_a_package_is_written_as_pip_reads_it(name: str, version: str | None, line: str) -> None:
    assert parse_pip_requirements([{"name": name, "version": version}]) == (line,)


def test_the_order_and_the_spelling_make_no_difference() -> None:
    one = [{"name": "B_b"}, {"name": "a", "version": "==1"}]
    other = [{"name": "a", "version": "1"}, {"name": "b-b"}, {"name": "b.b"}]
    assert parse_pip_requirements(one) == parse_pip_requirements(other) == ("a==1", "b-b")
    assert parse_pip_requirements(None) == parse_pip_requirements([]) == ()


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("--index-url=http://evil.example", None),
        ("-r", None),
        ("./here", None),
        ("/etc/passwd", None),
        ("pkg @ https://evil.example/x.whl", None),
        ("git+https://evil.example/x", None),
        ("requests==2", None),
        ("requests; python_version > '3'", None),
        ("requests\n--pre", None),
        ("requests", "2\n--pre"),
        ("requests", "2 --pre"),
        ("requests", "@ file:///x"),
        ("requests", ">="),
        ("requests[", None),
        ("x" * 101, None),
        ("", None),
    ],
)
def test_nothing_that_pip_would_take_for_more_than_a_package_is_accepted(
    name: str, version: Any
) -> None:
    with pytest.raises(InvalidArgument, match="pip_requirements"):
        parse_pip_requirements([{"name": name, "version": version}])


def test_there_is_a_limit() -> None:
    with pytest.raises(InvalidArgument, match="at most"):
        parse_pip_requirements([{"name": f"p{number}"} for number in range(MAX_REQUIREMENTS + 1)])


def test_npm_requirements_are_refused_with_a_reason() -> None:
    refuse_npm(None)
    refuse_npm([])
    with pytest.raises(InvalidArgument, match="tools are written in Python"):
        refuse_npm([{"name": "left-pad"}])
