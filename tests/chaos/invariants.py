"""What must hold after a chaos, by the database, the clients' ledger, the files of the tools and the streams."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from sqlalchemy import Row
from tests.chaos.ledger import Ledger
from tests.support.cluster import Cluster, count_jumps
from tests.support.stream_items import assert_ended, without_dates

_READERS: Final = 4


def find_violations(cluster: Cluster, ledger: Ledger, tool_lines: Sequence[str]) -> list[str]:
    runs = {run.id: run for run in cluster.facts.list_runs()}
    keys = {
        row.key: row.run_id
        for row in cluster.facts.fetch("SELECT key, run_id FROM idempotency_keys")
    }
    refused = [request.refused for request in cluster.provider.requests if request.refused]
    return [
        *ledger.problems,
        *cluster.facts.find_violations(),
        *(f"the provider refused a history: {why}" for why in refused),
        *_check_messages(cluster, ledger, runs, keys),
        *_check_tools(cluster, tool_lines),
        *_check_streams(cluster, ledger, runs, keys),
    ]


def _check_messages(
    cluster: Cluster, ledger: Ledger, runs: dict[str, Row[Any]], keys: dict[str, str]
) -> Iterator[str]:
    """Every acknowledged message has a run that ended, and is in its history."""
    query = "SELECT run_id, body FROM messages WHERE role = 'user'"
    bodies = {(row.run_id, row.body) for row in cluster.facts.fetch(query)}
    texts: dict[str, str] = {}
    for run_id, body in bodies:
        texts[run_id] = texts.get(run_id, "") + body
    for sent in ledger.sent:
        run_id = keys.get(sent.key)
        if run_id is None:
            if sent.is_acknowledged:
                yield f"the message {sent.text!r} was acknowledged and is lost"
            continue
        run = runs[run_id]
        if run.status == "failed":
            yield f"{run_id} failed: {run.body[:300]}"
        is_there = sent.text is None or sent.text in texts.get(run_id, "")
        if not is_there and run.status != "cancelled":
            yield f"the history of {run_id} lacks its message {sent.text!r}"
    for run_id in ledger.cancelled_runs:
        if runs[run_id].status != "cancelled":
            yield f"{run_id} was cancelled and is {runs[run_id].status}"


def _check_tools(cluster: Cluster, tool_lines: Sequence[str]) -> Iterator[str]:
    """No tool was started twice, and every result that was told is of a tool that was started."""
    started = Counter(tool_lines)
    for token, count in started.items():
        if count > 1:
            yield f"the tool of {token} was started {count} times"
    query = "SELECT body FROM messages WHERE role = 'tool'"
    for row in cluster.facts.fetch(query):
        for result in json.loads(row.body).get("tool_returns", ()):
            for part in result["content"]:
                told = part.get("text", "").removeprefix("noted ")
                if result["outcome"] == "finished" and told not in started:
                    yield f"a result was told of a tool that did not run: {part}"


def _check_streams(
    cluster: Cluster, ledger: Ledger, runs: dict[str, Row[Any]], keys: dict[str, str]
) -> Iterator[str]:
    """Two servers tell the same, to the end, with one jump per recovery at most; and numbers mean what they meant."""
    seen = {keys[sent.key]: sent.seen for sent in ledger.sent if sent.key in keys}
    with ThreadPoolExecutor(_READERS) as threads:
        for found in threads.map(
            lambda run: _check_stream(cluster, run, seen.get(run.id, {})), runs.values()
        ):
            yield from found


def _check_stream(cluster: Cluster, run: Row[Any], seen: dict[int, dict[str, Any]]) -> list[str]:
    first, second, *_ = cluster.alive
    told = without_dates(first.stream(run.id))
    found = []
    if told != without_dates(second.stream(run.id)):
        found.append(f"two servers tell {run.id} differently")
    try:
        assert_ended(told, run.stop_reason)
    except AssertionError as error:
        found.append(f"the stream of {run.id} has no proper end: {error}")
    if count_jumps(told) > run.fence // 2:
        found.append(f"the stream of {run.id} has too many jumps")
    by_number = {item["seq_id"]: item for item in told if item.get("seq_id") is not None}
    for number, item in seen.items():
        if number in by_number and by_number[number] != item:
            found.append(f"{run.id}: number {number} was {item} and is {by_number[number]}")
    return found
