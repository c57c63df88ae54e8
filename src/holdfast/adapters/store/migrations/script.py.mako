"""${message}."""

import sqlalchemy as sa
from alembic import op

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Only add. What takes something away must say so: CONTRIBUTING.md, "Upgrades without a stop".
    ${upgrades if upgrades else "pass"}
