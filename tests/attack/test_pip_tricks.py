"""Requirements of a tool that try to be more than the name of a package: an option, a path, an address, a command.

pip gets what is accepted as separate arguments after ``--``. So an accepted line must be one plain requirement.
"""

import re
from typing import Any

import pytest

from holdfast.core.requirements import parse_pip_requirements
from holdfast.errors import InvalidArgument

NAMES = {
    "an option": "--pre",
    "an index": "--index-url=http://evil.example/simple",
    "an index behind a name": "requests --index-url http://evil.example/simple",
    "another index": "--extra-index-url=http://evil.example",
    "links": "-fhttp://evil.example",
    "a file of requirements": "-r/etc/passwd",
    "constraints": "-c/etc/passwd",
    "an editable folder": "-e.",
    "a target": "--target=/usr/lib/python3",
    "a build option": "--config-settings=--build-option=x",
    "a hash": "requests --hash=sha256:00",
    "a folder": ".",
    "the folder above": "..",
    "a folder by its path": "./package",
    "an absolute path": "/tmp/package",
    "a home folder": "~/package",
    "a path with a backslash": ".\\package",
    "a file by its address": "file:///tmp/package",
    "an address": "https://evil.example/package.whl",
    "an address behind a name": "package @ https://evil.example/package.whl",
    "an address behind a name, without spaces": "package@https://evil.example/package.whl",
    "git": "git+https://evil.example/package",
    "git over SSH": "git+ssh://git@evil.example/package",
    "mercurial": "hg+http://evil.example/package",
    "a variable": "${HOME}",
    "a command": "$(touch /tmp/owned)",
    "another command": "requests; touch /tmp/owned",
    "a pipe": "requests|sh",
    "a comment": "requests # --pre",
    "a marker": "requests; sys_platform == 'linux'",
    "two names": "requests flask",
    "a version": "requests==2",
    "a second line": "requests\n--pre",
    "a second line after a carriage return": "requests\r--pre",
    "a line continuation": "requests\\\n--pre",
    "a NUL": "requests\0--pre",
    "a second line among the extras": "requests[socks,\n--pre]",
    "an option among the extras": "requests[--pre]",
    "extras that are not closed": "requests[socks",
    "extras twice": "requests[socks][socks]",
    "letters of another alphabet": "r\u0435quests",
    "a name that begins with a hyphen": "-requests",
    "a very long name": "x" * 101,
    "nothing": " ",
}
VERSIONS = {
    "an option": "--pre",
    "an option behind the version": "2 --pre",
    "a second line": "2\n--pre",
    "a second line in a condition": ">=\n2",
    "an address": "@ https://evil.example/package.whl",
    "a marker": "2; sys_platform == 'linux'",
    "a hash": "2 --hash=sha256:00",
    "a condition without a version": ">=",
    "an unknown condition": "=>2",
    "an empty condition": ">=2,,<3",
    "a path": "===/etc/passwd",
    "a variable": "${HOME}",
    "a list": [">=2"],
    "an object": {"a": 1},
}


@pytest.mark.parametrize("trick", NAMES)
def test_a_name_that_is_more_than_a_name_is_refused(trick: str) -> None:
    with pytest.raises(InvalidArgument, match="pip_requirements"):
        parse_pip_requirements([{"name": NAMES[trick]}])


@pytest.mark.parametrize("trick", VERSIONS)
def test_a_version_that_is_more_than_a_version_is_refused(trick: str) -> None:
    version: Any = VERSIONS[trick]
    with pytest.raises(InvalidArgument, match="pip_requirements"):
        parse_pip_requirements([{"name": "requests", "version": version}])


@pytest.mark.parametrize("name", ["package.whl", "package.tar.gz", "setup.py", "a..b", "a--b"])
def test_a_name_that_looks_like_a_file_is_looked_up_as_a_package(name: str) -> None:
    """pip takes what ends like an archive for a file. The normalized name has no dot."""
    (line,) = parse_pip_requirements([{"name": name}])
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", line)
