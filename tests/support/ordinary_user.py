"""Executes a command as an ordinary user, for tests that run as root: ``python -m tests.support.ordinary_user FOLDER COMMAND…``.

The folder becomes that user's.
"""

import os
import subprocess
import sys
from pathlib import Path

from tests.support.sandbox_host import ORDINARY_USER, ROOT

from holdfast.adapters.sandbox.isolation import interpreter_paths


def as_ordinary_user(folder: Path, *command: str) -> list[str]:
    """The command to start, in the folder of this checkout."""
    return [sys.executable, "-m", "tests.support.ordinary_user", str(folder), *command]


def ordinary_user_problem(folder: Path) -> str | None:
    """Why no command can be executed as an ordinary user; None if that is possible."""
    if os.geteuid() != 0:
        return "The tests do not run as root."
    command = as_ordinary_user(folder, sys.executable, "-c", "")
    completed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return completed.stderr if completed.returncode else None


def main() -> None:
    folder, *command = sys.argv[1:]
    needed = [*interpreter_paths(), str(ROOT)]
    if not ORDINARY_USER.become(needed=needed, writable=(), folder=folder):
        sys.exit("This process may not become an ordinary user that can reach Python.")
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
