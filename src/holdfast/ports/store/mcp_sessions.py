"""OAuth sessions with MCP servers."""

from datetime import datetime
from typing import Protocol

from holdfast.core.mcp_sessions import McpSession


class McpSessions(Protocol):
    """Tokens are encrypted at rest."""

    def add(self, session: McpSession) -> None: ...

    def get(self, session_id: str) -> McpSession | None: ...

    def find_by_state(self, state: str) -> McpSession | None:
        """Return the pending session that waits for the callback with this state."""
        ...

    def find_authorized(
        self, organization_id: str, user_id: str, server_url: str
    ) -> McpSession | None:
        """Return the newest session of this user for this URL that is authorized."""
        ...

    def save(self, session: McpSession) -> None:
        """Replace the session, but not ``refresh_ends_at``."""
        ...

    def begin_refresh(self, session_id: str, now: datetime, ends_at: datetime) -> bool:
        """Take the right to refresh the tokens of this session until ``ends_at``. False if another server has it."""
        ...

    def end_refresh(self, session: McpSession) -> None:
        """Replace the session, and give the right back."""
        ...

    def delete_pending_before(self, moment: datetime) -> None:
        """Delete sessions that nobody has completed since then."""
        ...

    def delete_unlinked(self, organization_id: str, user_id: str, server_url: str) -> None:
        """Delete the sessions of this user for this URL that belong to no stored server."""
        ...
