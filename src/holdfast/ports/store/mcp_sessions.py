"""OAuth sessions with MCP servers."""

from datetime import datetime
from typing import Protocol

from holdfast.core.mcp_sessions import McpSession


class McpSessions(Protocol):
    """Tokens are encrypted at rest."""

    def add(self, session: McpSession) -> None: ...

    def get(self, session_id: str) -> McpSession | None: ...

    def has_state(self, state: str) -> bool:
        """Whether a pending session waits for the callback with this state."""
        ...

    def take_by_state(self, state: str) -> McpSession | None:
        """Return the pending session that waits for the callback with this state, and let no other callback have it."""
        ...

    def find_authorized(
        self, organization_id: str, user_id: str, server_url: str
    ) -> McpSession | None:
        """Return the newest session of this user for this URL that is authorized."""
        ...

    def find_latest(self, organization_id: str, user_id: str, server_url: str) -> McpSession | None:
        """Return the authorized session of this user for this URL, or else the newest one."""
        ...

    def save(self, session: McpSession) -> None:
        """Replace the session, but not ``refresh_ends_at``."""
        ...

    def begin_refresh(self, session_id: str, now: datetime, ends_at: datetime) -> bool:
        """Take the right to refresh the tokens of this session until ``ends_at``. False if another server has it. Both times
        are by the clock of the database."""
        ...

    def end_refresh(self, session: McpSession) -> bool:
        """Replace the session, and give the right back. ``refresh_ends_at`` of the session says which right: if another
        server has taken it meanwhile, or the session was deleted, nothing is changed, and False is returned."""
        ...

    def delete_others(self, session: McpSession) -> None:
        """Delete all other sessions of its user for its URL, pending ones excepted."""
        ...

    def delete_all(self, organization_id: str, user_id: str, server_url: str) -> bool:
        """Delete all sessions of this user for this URL. False if there was none."""
        ...

    def delete_pending_before(self, moment: datetime) -> None:
        """Delete sessions that nobody has completed since then."""
        ...

    def delete_unlinked(self, organization_id: str, user_id: str, server_url: str) -> None:
        """Delete the sessions of this user for this URL that belong to no stored server."""
        ...
