"""The sandbox level `plain`: who tools run as, and where they may write. (The other level is `isolated`.)"""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from holdfast.adapters.sandbox.isolation import BWRAP, interpreter_paths
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


def describe_root_risk(name: str, user: ToolUser | None) -> str | None:
    """What an operator should know if the server runs as root at this level; None if it does not."""
    if os.geteuid() != 0:
        return None
    problem = "HOLDFAST_SANDBOX_USER is root" if user is None else _switch_problem(user)
    if problem is None:
        state = f"The server runs as root; plain tools run as {name}."
    else:
        state = f"The server runs as root, and so do plain tools, without root's privileges ({problem})."
    if shutil.which(BWRAP) is not None:
        return f"{state} HOLDFAST_SANDBOX=isolated protects it better, and bubblewrap is installed."
    return f"{state} Run it as an ordinary user, or install bubblewrap and set HOLDFAST_SANDBOX=isolated."


def writable_problem(writable: Sequence[Path], private: Sequence[Path]) -> str | None:
    """Why tools cannot be allowed to write there, as a sentence for the operator; None if they can."""
    for path in writable:
        if not path.exists():
            return f"HOLDFAST_SANDBOX_WRITABLE names {path}, which does not exist."
        real = path.resolve()
        for own in (each.resolve() for each in private):
            if real.is_relative_to(own) or own.is_relative_to(real):
                return (
                    f"HOLDFAST_SANDBOX_WRITABLE names {path}, but tools may not write to Holdfast's own "
                    f"files ({own})."
                )
    return None


def _switch_problem(user: ToolUser) -> str | None:
    return user.switch_problem(interpreter_paths())
