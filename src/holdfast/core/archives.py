"""Archives: collections of passages that agents look things up in. An archive may be shared by many agents."""

from datetime import datetime
from typing import Any

from msgspec import Struct

from holdfast.core.paging import Page

MAX_DESCRIPTION_CHARS = 100_000
DEFAULT_DESCRIPTION = "Default archive created automatically"


class Archive(Struct, frozen=True, kw_only=True):
    id: str
    organization_id: str
    name: str
    created_at: datetime
    updated_at: datetime
    description: str | None = None
    # The handle of the model that makes vectors of its passages, and its configuration as the caller gave it; None: words
    # only.
    embedding: str | None = None
    embedding_config: dict[str, Any] | None = None
    metadata: dict[str, Any] = {}
    # Whether a passage whose text is there already is not stored again.
    deduplicate: bool = False
    created_by_id: str | None = None
    last_updated_by_id: str | None = None


class ArchiveQuery(Struct, frozen=True, kw_only=True):
    """Filters of a list of archives. None means any."""

    page: Page
    name: str | None = None
    agent_id: str | None = None


def default_archive_name(agent_name: str) -> str:
    """The name of the archive that the first insert of an agent creates."""
    return f"{agent_name}'s Archive"
