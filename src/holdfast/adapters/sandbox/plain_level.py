"""The sandbox level `plain`: who tools run as, and where they may write. (The other level is `isolated`.)"""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from holdfast.adapters.sandbox.environments import ENVIRONMENTS
from holdfast.adapters.sandbox.isolation import BWRAP, code_paths, interpreter_paths
from holdfast.adapters.sandbox.tool_user import ToolUser
from holdfast.errors import CannotStart


def find_tool_user(name: str) -> ToolUser | None:
    """The user of plain tools, by name or number; None: the one that the server runs as, for only root can choose. Raises
    CannotStart if there is no such user."""
    if os.geteuid() != 0:
        return None
    try:
        user = ToolUser.find(name)
    except KeyError:
        raise CannotStart(
            f"HOLDFAST_SANDBOX_USER is {name!r}, but this machine has no such user."
        ) from None
    return user if user.uid != 0 else None


def describe_root_risk(name: str, user: ToolUser | None, home: Path) -> str | None:
    """What an operator should know if the server runs as root at this level; None if it does not."""
    if os.geteuid() != 0:
        return None
    if shutil.which(BWRAP) is None:
        advice = (
            "Run it as an ordinary user, or install bubblewrap and set HOLDFAST_SANDBOX=isolated."
        )
    else:
        advice = "HOLDFAST_SANDBOX=isolated is safer, and bubblewrap is installed."
    return f"The server runs as root. {_describe_user(name, user, home)} {advice}"


def _describe_user(name: str, user: ToolUser | None, home: Path) -> str:
    problem = "HOLDFAST_SANDBOX_USER says so"
    if user is not None:
        problem = user.switch_problem(interpreter_paths()) or ""
    if user is None or problem:
        return f"Plain tools run as root too, without its privileges: {problem}."
    if user.find_unreachable([str(home / ENVIRONMENTS / "one")]) is None:
        return f"Plain tools run as {name}."
    return (
        f"Plain tools run as {name}, but those with packages as root without its privileges: {name} cannot reach "
        f"{home}, and the server may not mount it elsewhere."
    )


def writable_problem(writable: Sequence[Path], private: Sequence[Path]) -> str | None:
    """Why tools cannot be allowed to write there, as a sentence for the operator; None if they can."""
    forbidden = dict.fromkeys(private, "Holdfast's own files")
    forbidden |= dict.fromkeys(map(Path, code_paths()), "the server's code")
    for path in writable:
        if not path.exists():
            return f"HOLDFAST_SANDBOX_WRITABLE names {path}, which does not exist."
        real = path.resolve()
        for own, kind in forbidden.items():
            if real.is_relative_to(own.resolve()) or own.resolve().is_relative_to(real):
                return f"HOLDFAST_SANDBOX_WRITABLE names {path}, but tools may not write to {kind} ({own.resolve()})."
    return None
