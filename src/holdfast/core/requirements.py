"""The pip packages that a tool requires: names and versions only. Options, paths and URLs for pip are refused."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from holdfast.errors import InvalidArgument

MAX_REQUIREMENTS: Final = 50

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,98}[A-Za-z0-9])?")
_EXTRA = r" *[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])? *"
_EXTRAS = re.compile(rf"\[{_EXTRA}(?:,{_EXTRA})*\]")
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.!+*_-]{0,63}")
_CONDITION = re.compile(rf"(?:===|==|~=|!=|<=|>=|<|>) *{_VERSION.pattern}")


def parse_pip_requirements(given: Sequence[Mapping[str, Any]] | None) -> tuple[str, ...]:
    """One normalized line per package, sorted; InvalidArgument if a requirement cannot be used."""
    wanted = given or ()
    if len(wanted) > MAX_REQUIREMENTS:
        raise InvalidArgument(f"A tool has at most {MAX_REQUIREMENTS} pip_requirements.")
    return tuple(
        sorted({_normalize(str(item.get("name")), item.get("version")) for item in wanted})
    )


def refuse_npm(given: Sequence[Mapping[str, Any]] | None) -> None:
    if given:
        raise InvalidArgument(
            "npm_requirements cannot be installed: tools are written in Python here. Leave them out."
        )


def _normalize(package: str, version: object) -> str:
    name = _NAME.match(package.strip())
    rest = package.strip()[name.end() :].strip() if name else package
    if name is None or (rest and _EXTRAS.fullmatch(rest) is None):
        raise InvalidArgument(
            f"{package!r} in pip_requirements is not the name of a package. A version goes into "
            "'version'; options, paths and addresses cannot be used."
        )
    extras = rest.replace(" ", "").lower()
    normal = re.sub(r"[-_.]+", "-", name.group()).lower()
    return f"{normal}{extras}{_normalize_version(package, version)}"


def _normalize_version(package: str, version: object) -> str:
    """The version conditions without spaces. A bare version means exactly that version, as in V1."""
    text = "" if version is None else str(version).strip()
    if not text:
        return ""
    if _VERSION.fullmatch(text):
        return f"=={text}"
    conditions = [part.strip() for part in text.split(",")]
    if not all(_CONDITION.fullmatch(part) for part in conditions):
        raise InvalidArgument(
            f"The version {text!r} of {package!r} in pip_requirements cannot be used: give one such as "
            "'2.1' or '>=2,<3'."
        )
    return ",".join(sorted(re.sub(r"\s+", "", part) for part in conditions))
