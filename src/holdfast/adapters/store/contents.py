"""What is in files: bytes and text, in parts. Unused contents are removed by ``file_removal``."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, delete, insert, select, update

from holdfast.adapters.store import tables
from holdfast.adapters.store.row_mapper import RowMapper
from holdfast.core.files import Content, ContentStatus, TextPart
from holdfast.errors import NotFound

_contents = tables.contents
_bytes = tables.content_bytes
_texts = tables.content_texts

CONTENT = RowMapper(Content, _contents)
_PART = (_texts.c.number, _texts.c.first_line, _texts.c.is_continued, _texts.c.text)


class SqlContents:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, content: Content) -> None:
        self._connection.execute(insert(_contents), CONTENT.to_row(content))

    def get(self, content_id: str) -> Content:
        return self._load(select(*CONTENT.columns), content_id)

    def lock(self, content_id: str) -> Content:
        # New rows that refer to the content need not wait.
        return self._load(select(*CONTENT.columns).with_for_update(key_share=True), content_id)

    def find(self, organization_id: str, digest: str, format: str) -> Content | None:  # noqa: A002 - see the port
        row = self._connection.execute(
            select(*CONTENT.columns)
            .where(
                _contents.c.organization_id == organization_id,
                _contents.c.digest == digest,
                _contents.c.format == format,
            )
            .with_for_update(key_share=True)
        ).first()
        return None if row is None else CONTENT.from_row(row)

    def save(self, content: Content) -> None:
        saved = self._connection.execute(
            update(_contents).where(_is(content.id)).values(CONTENT.to_row(content))
        )
        if saved.rowcount == 0:
            raise _not_found(content.id)

    def delete(self, content_id: str) -> None:
        self._connection.execute(
            update(_contents)
            .where(_contents.c.id == content_id)
            # Without its digest: the same bytes may come again before its rows are gone.
            .values(status=ContentStatus.DELETED, digest=None)
        )

    def add_bytes(self, content_id: str, number: int, data: bytes) -> None:
        row = {"content_id": content_id, "number": number, "data": data}
        self._connection.execute(insert(_bytes), row)

    def read_bytes(self, content_id: str, number: int) -> bytes | None:
        return self._connection.execute(
            select(_bytes.c.data).where(
                _bytes.c.content_id == content_id, _bytes.c.number == number
            )
        ).scalar_one_or_none()

    def add_text(self, content_id: str, parts: Sequence[TextPart]) -> None:
        rows = [
            {
                "content_id": content_id,
                "number": part.number,
                "first_line": part.first_line,
                "is_continued": part.is_continued,
                "text": part.text,
            }
            for part in parts
        ]
        if rows:
            self._connection.execute(insert(_texts), rows)

    def delete_text(self, content_id: str, limit: int) -> int:
        numbers = select(_texts.c.number).where(_texts.c.content_id == content_id).limit(limit)
        return self._connection.execute(
            delete(_texts).where(_texts.c.content_id == content_id, _texts.c.number.in_(numbers))
        ).rowcount

    def read_text_parts(self, content_id: str, start: int, limit: int) -> Sequence[TextPart]:
        rows = self._connection.execute(
            select(*_PART)
            .where(_texts.c.content_id == content_id, _texts.c.number >= start)
            .order_by(_texts.c.number)
            .limit(limit)
        )
        return [TextPart(*row) for row in rows]

    def read_text(self, content_id: str) -> str:
        texts = (
            select(_texts.c.text).where(_texts.c.content_id == content_id).order_by(_texts.c.number)
        )
        return "".join(self._connection.execute(texts).scalars())

    def read_lines(
        self, content_id: str, first: int, last: int | None, max_chars: int | None = None
    ) -> str:
        start = self._find_part(content_id, first)
        if start is None:
            return ""
        number, line = start
        selected = select(_texts.c.text).where(
            _texts.c.content_id == content_id, _texts.c.number >= number
        )
        if last is not None:
            selected = selected.where(_texts.c.first_line <= last)
        window = _LineWindow(line, first, last, max_chars)
        # Row by row: a line may have many parts, and ``max_chars`` may need none of them.
        with self._connection.execute(
            selected.order_by(_texts.c.number).execution_options(yield_per=1)
        ) as rows:
            for text in rows.scalars():
                if window.add(text):
                    break
        return "".join(window.shown)

    def list_broken_uploads(self, before: datetime, limit: int) -> Sequence[Content]:
        rows = self._connection.execute(
            select(*CONTENT.columns)
            .where(_contents.c.status == ContentStatus.RECEIVING, _contents.c.created_at < before)
            .order_by(_contents.c.created_at)
            .limit(limit)
        )
        return [CONTENT.from_row(row) for row in rows]

    def _load(self, selected: Select[Any], content_id: str) -> Content:
        row = self._connection.execute(selected.where(_is(content_id))).first()
        if row is None:
            raise _not_found(content_id)
        return CONTENT.from_row(row)

    def _find_part(self, content_id: str, line: int) -> tuple[int, int] | None:
        """The number of the part in which the line begins, and the line with which that part begins."""
        row = self._connection.execute(
            select(_texts.c.number, _texts.c.first_line)
            .where(
                _texts.c.content_id == content_id,
                _texts.c.first_line <= line,
                _texts.c.is_continued.is_(False),
            )
            .order_by(_texts.c.first_line.desc(), _texts.c.number.desc())
            .limit(1)
        ).first()
        return None if row is None else (row[0], row[1])


class _LineWindow:
    """Collects the lines from ``first`` to ``last`` of texts that follow one another and begin at ``line``."""

    def __init__(self, line: int, first: int, last: int | None, max_chars: int | None) -> None:
        self.shown: list[str] = []
        self._line = line
        self._first = first
        self._last = last
        self._chars_left = max_chars

    def add(self, text: str) -> bool:
        """Add the next text; return whether nothing more is needed."""
        start = 0
        while self._line < self._first:
            line_end = text.find("\n", start)
            if line_end < 0:
                return False
            start, self._line = line_end + 1, self._line + 1
        end, is_complete = self._find_end(text, start)
        if self._chars_left is not None:
            end = min(end, start + self._chars_left)
            self._chars_left -= end - start
            is_complete = is_complete or self._chars_left == 0
        self.shown.append(text[start:end])
        return is_complete

    def _find_end(self, text: str, start: int) -> tuple[int, bool]:
        if self._last is None:
            return len(text), False
        end = start
        while self._line <= self._last:
            line_end = text.find("\n", end)
            if line_end < 0:
                return len(text), False
            end, self._line = line_end + 1, self._line + 1
        return end, True


def _is(content_id: str) -> ColumnElement[bool]:
    return (_contents.c.id == content_id) & (_contents.c.status != ContentStatus.DELETED)


def _not_found(content_id: str) -> NotFound:
    return NotFound(f"Content with ID {content_id} not found")
