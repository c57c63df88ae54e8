"""A simulated next version of Holdfast: one with a further revision of the schema."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.adapters.store import schema_upgrade

HEAD = schema_upgrade.HEAD
NEXT = f"{int(HEAD) + 1:04}"

NextRevision = Callable[[str], None]


def release_next_version(folder: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    """Make this process that version. ``body``: what its revision does, in Python."""
    scripts = folder / "migrations"
    shutil.copytree(schema_upgrade._SCRIPTS, scripts)
    (scripts / "versions" / f"v{NEXT}_next.py").write_text(
        "import sqlalchemy as sa\nfrom alembic import op\n\n"
        f'revision = "{NEXT}"\ndown_revision = "{HEAD}"\n\n\n'
        f"def upgrade() -> None:\n{body}"
    )
    monkeypatch.setattr(schema_upgrade, "_SCRIPTS", scripts)
    monkeypatch.setattr(schema_upgrade, "REVISIONS", (*schema_upgrade.REVISIONS, NEXT))
    monkeypatch.setattr(schema_upgrade, "HEAD", NEXT)
