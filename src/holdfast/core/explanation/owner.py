"""Explaining where a run that has not ended is executed: on this server, on another one, or on none at the moment."""

import math
from datetime import timedelta
from typing import Final

from msgspec.structs import replace

from holdfast.core.explanation.durations import format_span
from holdfast.core.explanation.types import Explanation, Facts, Owner
from holdfast.core.runs import RunStatus
from holdfast.core.servers import LEADER_POLL_SECONDS, TAKEOVER_SECONDS

# How long after the end of a lease the runs of its server are free for others.
_TAKEOVER_SECONDS: Final = LEADER_POLL_SECONDS + TAKEOVER_SECONDS


def add_owner(explanation: Explanation, facts: Facts) -> Explanation:
    """Say who executes the run, and what happens if nobody does. If no other server can use the database, there is only
    one who could, and nothing is said."""
    owner = facts.owner
    if owner is None:
        is_queued = facts.run.status is RunStatus.QUEUED
        return explanation if is_queued else _explain_released(explanation, facts)
    if not owner.is_alive:
        return _explain_dead(explanation, facts, owner)
    if owner.lease_seconds is None:
        return explanation
    return _explain_alive(explanation, facts, owner, owner.lease_seconds)


def describe_next_start(facts: Facts, verb: str) -> str:
    """When a run that waits in the queue is executed."""
    if facts.alive_workers == 0:
        return "No server that executes runs is alive. The first one that is started executes it."
    return f"The next server with room {verb} it, also after a restart."


def _explain_alive(
    explanation: Explanation, facts: Facts, owner: Owner, lease_seconds: float
) -> Explanation:
    is_queued = facts.run.status is RunStatus.QUEUED
    verb = "has claimed" if is_queued else "executes"
    by_itself = "That server starts it at once." if is_queued else explanation.by_itself
    name = "This server" if owner.is_this else f"The server {_name(owner)}"
    if not owner.is_this:
        latest = math.ceil(lease_seconds + _TAKEOVER_SECONDS)
        by_itself = f"{by_itself} If that server has died, another one takes the run over within {latest} seconds."
    return replace(
        explanation, summary=f"{explanation.summary} {name} {verb} it.", by_itself=by_itself
    )


def _explain_dead(explanation: Explanation, facts: Facts, owner: Owner) -> Explanation:
    by_itself = f"Another server takes it over within {math.ceil(_TAKEOVER_SECONDS)} seconds."
    if facts.alive_workers == 0:
        by_itself = describe_next_start(facts, "goes on with")
    return replace(
        explanation, summary=f"{explanation.summary} {_describe_death(owner)}", by_itself=by_itself
    )


def _describe_death(owner: Owner) -> str:
    if owner.lease_ends_at is None or owner.lease_seconds is None:
        return f"Its server {_name(owner)} is dead, and no longer listed."
    ended = format_span(timedelta(seconds=-owner.lease_seconds))
    return f"Its server {_name(owner)} is dead: its lease ended {ended} ago."


def _explain_released(explanation: Explanation, facts: Facts) -> Explanation:
    return replace(
        explanation,
        summary=f"{explanation.summary} No server executes it now: it waits in the queue.",
        by_itself=describe_next_start(facts, "goes on with"),
    )


def _name(owner: Owner) -> str:
    return owner.server_id if owner.host is None else f"{owner.server_id} on {owner.host}"
