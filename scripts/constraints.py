"""Prints the versions of all packages that Holdfast uses here, with all extras, as constraints for pip."""

import re
import sys
from importlib.metadata import distribution

from packaging.requirements import Requirement

HEADER = """\
# The versions that Holdfast was tested with. `make run` and `make test` install exactly these; `pip install holdfast` is
# free within the ranges of pyproject.toml. Renew with `make constraints`, check for known vulnerabilities with `make audit`.
"""
# Comes with the environment: each Python has the version that it can use.
LEFT_OUT = ("setuptools",)


def canonical_name(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def find_versions(package: str) -> dict[str, str]:
    """The installed versions of all that the package needs, directly or not, with all extras of the package itself."""
    found: dict[str, str] = {}
    extras = frozenset(distribution(package).metadata.get_all("Provides-Extra") or ())
    waiting = [(package, extras)]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        name, extras = waiting.pop()
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        found[name] = distribution(name).version
        for text in distribution(name).requires or ():
            needed = Requirement(text)
            marker = needed.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras)):
                waiting.append((canonical_name(needed.name), frozenset(needed.extras)))
    return {name: version for name, version in found.items() if name not in (package, *LEFT_OUT)}


if __name__ == "__main__":
    versions = find_versions("holdfast")
    sys.stdout.write(HEADER)
    sys.stdout.writelines(f"{name}=={versions[name]}\n" for name in sorted(versions))
