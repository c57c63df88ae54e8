"""The callback outbox: each end of a run is added once, and one process at a time delivers it."""

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec.structs import replace
from sqlalchemy import create_engine, insert
from tests.support.sqlite_work import count_instructions
from tests.support.values import Make

from holdfast.adapters.store import tables
from holdfast.adapters.store.callbacks import SqlCallbacks
from holdfast.core.callbacks import CallbackOutcome, ClaimedCallback
from holdfast.core.lifecycle import Signal
from holdfast.core.runs import Run, RunRequest, RunStatus
from holdfast.ports.store import Store, Transaction

MINUTE = timedelta(minutes=1)


async def store_runs(store: Store, make: Make, *urls: str | None, **fields: Any) -> list[Run]:
    """A running run for each URL, each in its own thread."""

    def work(tx: Transaction) -> list[Run]:
        made = []
        for url in urls:
            agent = make.agent()
            thread = make.thread(agent)
            run = make.run(thread, request=RunRequest(callback_url=url), **fields)
            tx.agents.add(agent)
            tx.threads.add(thread)
            tx.runs.add(run)
            made.append(tx.runs.transition(run, Signal.CLAIM))
        return made

    return await store.write(work)


async def end(store: Store, run: Run, signal: Signal = Signal.COMPLETE) -> Run:
    ended = replace(run, completed_at=run.created_at)
    return await store.write(lambda tx: tx.runs.transition(ended, signal))


async def claim(
    store: Store,
    now: datetime,
    *,
    limit: int = 100,
    per_host: int = 100,
    under_way: Counter[str] | None = None,
) -> list[ClaimedCallback]:
    busy = under_way or Counter[str]()
    due = await store.read(
        lambda tx: tx.callbacks.list_due(now, limit=limit, per_host=per_host, in_flight=busy)
    )
    return list(await store.write(lambda tx: tx.callbacks.claim(due, now + MINUTE)))


async def test_a_callback_is_due_when_a_run_with_a_url_ends(any_store: Store, make: Make) -> None:
    asked, silent = await store_runs(any_store, make, "http://hooks.example/a", None)
    later = silent.created_at + MINUTE
    assert await claim(any_store, later) == []

    for run in (asked, silent):
        await end(any_store, run)

    assert await claim(any_store, later) == [
        ClaimedCallback(run_id=asked.id, host="hooks.example", attempts=1)
    ]


async def test_a_run_has_one_callback_though_it_may_end_twice(any_store: Store, make: Make) -> None:
    """For V1 a run that waits for a person has ended; its cancel or answer causes no second callback."""
    urls = ["http://hooks.example/"] * 2
    runs = [
        await end(any_store, run, Signal.PAUSE) for run in await store_runs(any_store, make, *urls)
    ]
    later = runs[-1].created_at + MINUTE
    assert [item.run_id for item in await claim(any_store, later)] == [run.id for run in runs]

    for run, signal in zip(runs, (Signal.CANCEL, Signal.ANSWER), strict=True):
        await any_store.write(lambda tx, run=run, signal=signal: tx.runs.transition(run, signal))  # type: ignore[misc]  # mypy types no default of a lambda

    assert await claim(any_store, later) == []


async def test_a_queued_run_that_is_cancelled_has_a_callback_too(
    any_store: Store, make: Make
) -> None:
    (running,) = await store_runs(any_store, make, "http://hooks.example/")
    queued = replace(running, id=make.run(make.thread(make.agent())).id, status=RunStatus.QUEUED)
    await any_store.write(lambda tx: tx.runs.add(queued))

    await end(any_store, queued, Signal.CANCEL)

    claimed = await claim(any_store, queued.created_at + MINUTE)
    assert [item.run_id for item in claimed] == [queued.id]


async def test_a_claimed_callback_cannot_be_claimed_again_until_its_claim_ends(
    any_store: Store, make: Make
) -> None:
    (run,) = await store_runs(any_store, make, "http://hooks.example/")
    await end(any_store, run)
    now = run.created_at + MINUTE

    assert [item.attempts for item in await claim(any_store, now)] == [1]
    assert await claim(any_store, now + MINUTE / 2) == []
    # The process that had claimed it died.
    (second,) = await claim(any_store, now + MINUTE)
    assert second.attempts == 2

    first = ClaimedCallback(run_id=run.id, host="hooks.example", attempts=1)
    late = CallbackOutcome(error="Too late to say.")
    await any_store.write(lambda tx: tx.callbacks.record_outcome(first, late, None))
    assert await load_outcome(any_store, run) == CallbackOutcome()


async def load_outcome(store: Store, run: Run) -> CallbackOutcome | None:
    found = await store.read(lambda tx: tx.runs.get(run.organization_id, run.id))
    return found.callback


async def test_of_several_processes_one_claims_a_callback(any_store: Store, make: Make) -> None:
    runs = await store_runs(any_store, make, *["http://hooks.example/"] * 6)
    for run in runs:
        await end(any_store, run)
    now = runs[-1].created_at + MINUTE

    shares = await asyncio.gather(*(claim(any_store, now, limit=3) for _ in range(4)))

    taken = Counter(item.run_id for share in shares for item in share)
    assert all(count == 1 for count in taken.values())
    rest = await claim(any_store, now)
    assert sorted([*taken, *(item.run_id for item in rest)]) == sorted(run.id for run in runs)


async def test_no_host_gets_more_than_its_share(any_store: Store, make: Make) -> None:
    slow = [f"http://slow.example/{number}" for number in range(5)]
    runs = await store_runs(any_store, make, *slow, "http://quick.example/", "http://busy.example/")
    for run in runs:
        await end(any_store, run)

    taken = await claim(
        any_store,
        runs[-1].created_at + MINUTE,
        limit=4,
        per_host=2,
        under_way=Counter({"busy.example": 2, "slow.example": 1}),
    )

    assert [item.host for item in taken] == ["slow.example", "quick.example"]


async def test_the_outcome_of_an_attempt_is_shown_with_the_run(
    any_store: Store, make: Make
) -> None:
    called_back, waiting, silent = await store_runs(
        any_store, make, "http://hooks.example/1", "http://hooks.example/2", None
    )
    assert await load_outcome(any_store, called_back) is None
    for run in (called_back, waiting, silent):
        await end(any_store, run)
    now = silent.created_at + MINUTE
    first, second = await claim(any_store, now)
    done = CallbackOutcome(sent_at=now, status_code=200)
    failed = CallbackOutcome(sent_at=now, status_code=500, error="It said 500.")

    def settle(tx: Transaction) -> None:
        tx.callbacks.record_outcome(first, done, None)
        tx.callbacks.record_outcome(second, failed, now + 2 * MINUTE)

    await any_store.write(settle)

    assert await load_outcome(any_store, called_back) == done
    assert await load_outcome(any_store, waiting) == failed
    assert await load_outcome(any_store, silent) is None
    assert await any_store.read(lambda tx: tx.callbacks.next_due_at(now)) == now + 2 * MINUTE
    assert await claim(any_store, now + MINUTE) == []
    assert [item.attempts for item in await claim(any_store, now + 2 * MINUTE)] == [2]


async def test_a_released_callback_can_be_claimed_at_once(any_store: Store, make: Make) -> None:
    (run,) = await store_runs(any_store, make, "http://hooks.example/")
    await end(any_store, run)
    now = run.created_at + MINUTE
    (claimed,) = await claim(any_store, now)

    await any_store.write(lambda tx: tx.callbacks.release(claimed, now))

    assert [item.attempts for item in await claim(any_store, now)] == [2]
    assert await load_outcome(any_store, run) == CallbackOutcome()


async def test_a_callback_is_deleted_with_its_run(any_store: Store, make: Make) -> None:
    (run,) = await store_runs(any_store, make, "http://hooks.example/")
    await end(any_store, run)

    await any_store.write(lambda tx: tx.runs.delete(run.organization_id, run.id))

    assert await claim(any_store, run.created_at + MINUTE) == []


def test_a_backlog_is_read_once_and_not_by_the_writer() -> None:
    """Thousands may be due for a receiver that hangs; other receivers and the writer must not wait for it."""
    looking, taking = work_of_a_claim(hanging=2_000, others=20)
    looking_for_one, _ = work_of_a_claim(hanging=2_000, others=1)
    _, taking_alone = work_of_a_claim(hanging=0, others=20)

    assert looking < 1.5 * looking_for_one
    assert taking <= taking_alone + 100


def work_of_a_claim(*, hanging: int, others: int) -> tuple[int, int]:
    """The cost of finding and claiming the other callbacks behind all those of a receiver that hangs."""
    engine = create_engine("sqlite://")
    tables.metadata.create_all(engine)
    hosts = ["hangs.example"] * hanging + [f"{number}.example" for number in range(others)]
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    rows = [
        {"run_id": f"run-{n}", "host": host, "attempts": 0, "due_at": begin + timedelta(seconds=n)}
        for n, host in enumerate(hosts)
    ]
    with engine.connect() as connection:
        connection.execute(insert(tables.callbacks), rows)
        callbacks = SqlCallbacks(connection)
        now = begin + timedelta(days=1)
        with count_instructions(connection) as looking:
            due = callbacks.list_due(now, limit=32, per_host=2, in_flight={"hangs.example": 1})
        with count_instructions(connection) as taking:
            claimed = callbacks.claim(due, now + MINUTE)
    assert [item.host for item in claimed] == list(dict.fromkeys(hosts))
    return len(looking), len(taking)
