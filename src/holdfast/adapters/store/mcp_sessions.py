"""OAuth sessions with MCP servers. Their tokens and addresses are encrypted by ``cipher``; they are found by a hash of the
server's URL, which may have a key in it."""

import hashlib
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, and_, delete, insert, or_, select, update

from holdfast.adapters.store import tables
from holdfast.adapters.store.cipher import Cipher
from holdfast.adapters.store.row_mapper import JsonBody, RowMapper
from holdfast.core.mcp_sessions import McpSession, SessionStatus
from holdfast.errors import NotFound

_sessions = tables.mcp_sessions

# The authorization server's addresses often repeat that of the MCP server.
_ENCRYPTED: Final = (
    "secrets",
    "server_url",
    "authorization_url",
    "token_endpoint",
    "issuer",
    "resource",
)
_encrypted = JsonBody(McpSession, _ENCRYPTED)

SESSION = RowMapper(
    McpSession, _sessions, stored_elsewhere=_ENCRYPTED, skipped_by_save=("refresh_ends_at",)
)
_columns = (*SESSION.columns, _sessions.c.encrypted_secrets)


class SqlMcpSessions:
    def __init__(self, connection: Connection, cipher: Cipher) -> None:
        self._connection = connection
        self._cipher = cipher

    def add(self, session: McpSession) -> None:
        self._connection.execute(insert(_sessions), self._to_row(session))

    def get(self, session_id: str) -> McpSession | None:
        return self._find(_sessions.c.id == session_id)

    def has_state(self, state: str) -> bool:
        return (
            self._connection.execute(select(_sessions.c.id).where(_waits_for(state))).first()
            is not None
        )

    def take_by_state(self, state: str) -> McpSession | None:
        row = self._connection.execute(select(_sessions.c.id).where(_waits_for(state))).first()
        if row is None:
            return None
        # Of two callbacks at once, the second one finds the state changed.
        taken = self._connection.execute(
            update(_sessions).where(_sessions.c.id == row[0], _waits_for(state)).values(state=None)
        )
        return self.get(row[0]) if taken.rowcount == 1 else None

    def find_authorized(
        self, organization_id: str, user_id: str, server_url: str
    ) -> McpSession | None:
        return self._find(
            *_belongs_to(organization_id, user_id, server_url),
            _sessions.c.status == SessionStatus.AUTHORIZED,
        )

    def find_latest(self, organization_id: str, user_id: str, server_url: str) -> McpSession | None:
        return self.find_authorized(organization_id, user_id, server_url) or self._find(
            *_belongs_to(organization_id, user_id, server_url)
        )

    def save(self, session: McpSession) -> None:
        row = self._to_row(session)
        self._update(session, {name: row[name] for name in SESSION.mutable_columns})

    def begin_refresh(self, session_id: str, now: datetime, ends_at: datetime) -> bool:
        taken = self._connection.execute(
            update(_sessions)
            .where(
                _sessions.c.id == session_id,
                or_(_sessions.c.refresh_ends_at.is_(None), _sessions.c.refresh_ends_at <= now),
            )
            .values(refresh_ends_at=ends_at)
        )
        return taken.rowcount == 1

    def end_refresh(self, session: McpSession) -> bool:
        ended = self._connection.execute(
            update(_sessions)
            .where(
                _sessions.c.id == session.id,
                _sessions.c.refresh_ends_at == session.refresh_ends_at,
            )
            .values(self._to_row(session) | {"refresh_ends_at": None})
        )
        return ended.rowcount == 1

    def delete_others(self, session: McpSession) -> None:
        self._connection.execute(
            delete(_sessions).where(
                *_belongs_to(session.organization_id, session.user_id, session.server_url),
                _sessions.c.id != session.id,
                _sessions.c.status != SessionStatus.PENDING,
            )
        )

    def delete_all(self, organization_id: str, user_id: str, server_url: str) -> bool:
        deleted = self._connection.execute(
            delete(_sessions).where(*_belongs_to(organization_id, user_id, server_url))
        )
        return deleted.rowcount > 0

    def delete_pending_before(self, moment: datetime) -> None:
        self._connection.execute(
            delete(_sessions).where(
                _sessions.c.status == SessionStatus.PENDING, _sessions.c.created_at < moment
            )
        )

    def delete_unlinked(self, organization_id: str, user_id: str, server_url: str) -> None:
        self._connection.execute(
            delete(_sessions).where(
                *_belongs_to(organization_id, user_id, server_url), _sessions.c.server_id.is_(None)
            )
        )

    def _find(self, *conditions: Any) -> McpSession | None:
        row = self._connection.execute(
            select(*_columns)
            .where(*conditions)
            .order_by(_sessions.c.updated_at.desc(), _sessions.c.id.desc())
            .limit(1)
        ).first()
        return None if row is None else self._from_row(row)

    def _update(self, session: McpSession, values: dict[str, Any]) -> None:
        saved = self._connection.execute(
            update(_sessions).where(_sessions.c.id == session.id).values(values)
        )
        if saved.rowcount == 0:
            raise NotFound(f"There is no login with the id {session.id}.")

    def _to_row(self, session: McpSession) -> dict[str, Any]:
        return SESSION.to_row(session) | {
            "url_hash": _hash(session.server_url),
            "encrypted_secrets": self._cipher.encrypt(_encrypted.encode(session)),
        }

    def _from_row(self, row: Sequence[Any]) -> McpSession:
        return SESSION.from_row(row, **_encrypted.decode(self._cipher.decrypt(row[-1])))


def _waits_for(state: str) -> ColumnElement[bool]:
    return and_(_sessions.c.state == state, _sessions.c.status == SessionStatus.PENDING)


def _belongs_to(
    organization_id: str, user_id: str, server_url: str
) -> tuple[ColumnElement[bool], ...]:
    return (
        _sessions.c.organization_id == organization_id,
        _sessions.c.user_id == user_id,
        _sessions.c.url_hash == _hash(server_url),
    )


def _hash(url: str) -> str:
    return hashlib.sha256(url.encode()).hexdigest()
