"""Durations as text."""

from datetime import datetime, timedelta

from holdfast.core.explanation.types import Facts
from holdfast.core.runs import Run


def format_duration(facts: Facts, since: datetime | None) -> str:
    return "for a moment" if since is None else f"for {format_span(facts.now - since)}"


def format_ago(facts: Facts, since: datetime | None) -> str:
    return "just now" if since is None else f"{format_span(facts.now - since)} ago"


def format_run_time(run: Run) -> str:
    return format_span(timedelta(microseconds=(run.total_duration_ns or 0) // 1_000))


def format_span(span: timedelta) -> str:
    """A span in the largest fitting unit, with about two digits."""
    seconds = max(span.total_seconds(), 0.0)
    for unit, length in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} seconds" if seconds >= 10 else f"{seconds:.1f} seconds"
