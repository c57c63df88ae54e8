"""constraints.txt: one version of each package, which pyproject.toml allows and which these tests use."""

import re
import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]


def read_constraints() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    rows = [line.split("==") for line in lines if not line.startswith("#")]
    assert len(rows) == len({name for name, _ in rows})
    return dict(rows)


def read_requirements() -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"].values()
    return [Requirement(text) for rows in (project["dependencies"], *extras) for text in rows]


def test_every_direct_dependency_has_a_version_that_is_allowed() -> None:
    constraints = read_constraints()
    for needed in read_requirements():
        assert needed.specifier.contains(constraints[canonicalize_name(needed.name)]), needed


def test_the_tests_run_with_these_versions() -> None:
    different = {}
    for name, pinned in read_constraints().items():
        try:
            installed = version(name)
        except PackageNotFoundError:
            # Another platform or Python needs fewer packages.
            continue
        if installed != pinned:
            different[name] = (installed, pinned)
    assert different == {}


def test_no_index_is_named() -> None:
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    assert re.search(r"--|://|@", text) is None
