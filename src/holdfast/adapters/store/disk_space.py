"""Room on the disk of a SQLite store. A PostgreSQL server may be on another machine: only its writes can tell."""

import shutil
from pathlib import Path
from typing import Final

from sqlalchemy import Connection

# With less, the next message may not fit.
MIN_FREE_BYTES: Final = 1024 * 1024


def has_disk_space(connection: Connection) -> bool:
    path = connection.engine.url.database
    if connection.dialect.name != "sqlite" or path is None:
        return True
    return shutil.disk_usage(Path(path).parent).free >= MIN_FREE_BYTES
