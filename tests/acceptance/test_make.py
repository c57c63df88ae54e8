"""``make run`` and ``make test`` on a machine with the wrong Python, or with a .venv that cannot be used.

The Pythons are scripts that say what version they are; nothing is installed.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NEEDED = "Holdfast needs Python 3.11 or newer, but "

# Answers questions with its own version, writes down all other commands, and makes environments with a copy of itself.
FAKE_PYTHON = f"""#!{sys.executable} -I
import shutil, sys
from pathlib import Path

version = {{version!r}}
own = Path(__file__)
command = sys.argv[1:]
if command[0] == "-c":
    sys.version_info = (*map(int, version.split(".")), "final", 0)
    sys.version = version + " (fake)"
    sys.prefix = str(own.parents[1])
    exec(command[1])
    sys.exit()
with open("commands.log", "a") as log:
    print(version, *command, file=log)
if command[:2] == ["-m", "venv"]:
    folder = Path(command[-1])
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "bin").mkdir(parents=True)
    (folder / "pyvenv.cfg").write_text("version = " + version + "\\n")
    shutil.copy(own, folder / "bin" / "python")
    (folder / "bin" / "holdfast").write_text("#!/bin/sh\\necho the server runs\\n")
    (folder / "bin" / "holdfast").chmod(0o755)
"""


class Project:
    """A folder with the Makefile and what it needs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.venv = folder / ".venv"
        (folder / "scripts").mkdir()
        for name in ("Makefile", "constraints.txt", "pyproject.toml", "scripts/venv.sh"):
            shutil.copy(ROOT / name, folder / name)

    def add_python(self, name: str, version: str) -> None:
        python = self.folder / "bin" / name
        python.parent.mkdir(exist_ok=True)
        python.write_text(FAKE_PYTHON.format(version=version), encoding="utf-8")
        python.chmod(0o755)

    def make(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["make", *arguments],
            cwd=self.folder,
            env={"PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    @property
    def environments_made(self) -> list[str]:
        """The versions of the Pythons that made .venv, in their order."""
        log = self.folder / "commands.log"
        lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
        return [line.split()[0] for line in lines if " -m venv " in line]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


@pytest.mark.parametrize("target", ["run", "test"])
def test_an_old_python_is_refused_in_one_sentence_and_leaves_no_venv(
    project: Project, target: str
) -> None:
    project.add_python("python3", "3.10.12")

    refused = project.make(target)

    assert refused.returncode != 0
    told, *rest = refused.stderr.splitlines()
    assert told.startswith(f"{NEEDED}python3 is Python 3.10.12: ")
    assert all(line.startswith("make") for line in rest)
    assert not project.venv.exists()


def test_a_python_that_is_not_there_is_refused_in_one_sentence(project: Project) -> None:
    refused = project.make("run", "PYTHON=python3.99")

    assert refused.returncode != 0
    assert refused.stderr.startswith(f"{NEEDED}there is no python3.99 here: ")
    assert not project.venv.exists()


def test_the_server_is_installed_once(project: Project) -> None:
    project.add_python("python3", "3.12.1")

    started = [project.make("run"), project.make("run")]

    assert [done.stdout.splitlines()[-1] for done in started] == ["the server runs"] * 2
    assert project.environments_made == ["3.12.1"]
    assert (project.folder / "commands.log").read_text(encoding="utf-8").count("pip install") == 1


def test_a_venv_of_a_python_that_is_too_old_is_made_again(project: Project) -> None:
    project.add_python("python3", "3.10.12")
    subprocess.run(
        [project.folder / "bin" / "python3", "-m", "venv", ".venv"], cwd=project.folder, check=True
    )
    (project.venv / ".stamp-run").touch()
    project.add_python("python3", "3.12.1")

    done = project.make("run")

    assert done.returncode == 0, done.stderr
    assert project.environments_made == ["3.10.12", "3.12.1"]


def test_a_venv_of_another_python_than_the_named_one_is_made_again(project: Project) -> None:
    project.add_python("python3", "3.12.1")
    project.add_python("python3.11", "3.11.9")
    project.make("run")

    done = project.make("run", "PYTHON=python3.11")

    assert done.returncode == 0, done.stderr
    assert project.environments_made == ["3.12.1", "3.11.9"]


def test_a_venv_whose_python_was_upgraded_is_made_again(project: Project) -> None:
    project.add_python("python3", "3.12.1")
    project.make("run")
    project.add_python("python3", "3.13.0")
    shutil.copy(project.folder / "bin" / "python3", project.venv / "bin" / "python")

    done = project.make("run")

    assert done.returncode == 0, done.stderr
    assert project.environments_made == ["3.12.1", "3.13.0"]


def test_a_half_made_venv_is_made_again(project: Project) -> None:
    project.add_python("python3", "3.12.1")
    project.make("run")
    (project.venv / ".stamp-run").unlink()

    done = project.make("run")

    assert done.returncode == 0, done.stderr
    assert project.environments_made == ["3.12.1", "3.12.1"]


def test_a_usable_venv_serves_where_the_default_python_is_too_old(project: Project) -> None:
    project.add_python("python3", "3.10.12")
    project.add_python("python3.12", "3.12.1")
    project.make("run", "PYTHON=python3.12")

    done = project.make("run")

    assert done.stdout.splitlines()[-1] == "the server runs"
    assert project.environments_made == ["3.12.1"]


def test_the_tested_versions_are_installed(project: Project) -> None:
    project.add_python("python3", "3.12.1")
    project.make("run")
    log = (project.folder / "commands.log").read_text(encoding="utf-8")
    assert "--constraint constraints.txt" in log

    newer = (project.venv / ".stamp-run").stat().st_mtime + 10
    os.utime(project.folder / "constraints.txt", (newer, newer))
    project.make("run")

    log = (project.folder / "commands.log").read_text(encoding="utf-8")
    assert log.count("pip install") == 2
