"""A run as spans (wire-v1 §2.8)."""

from typing import Any

from msgspec import Struct


class Span(Struct, frozen=True, kw_only=True):
    trace_id: str
    span_id: str
    parent_span_id: str | None
    name: str
    start_time_unix_nano: int
    # Null: it has not ended, or its duration was not measured.
    duration_ns: int | None
    status: str
    attributes: dict[str, Any]
