"""The simulation must be deterministic, and it must find deliberate bugs."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import closing
from typing import Any

import pytest
from tests.simulation import loop
from tests.simulation.chance import Chance
from tests.simulation.disk import Disk
from tests.simulation.ledger import Ledger
from tests.simulation.scenario import Scenario
from tests.simulation.seeds import disks, iter_violations, play_all

from holdfast import run_end
from holdfast.core import compaction
from holdfast.core.compaction import Trigger
from holdfast.core.lifecycle import HOLDING, TRANSITIONS
from holdfast.engine import compact, runner
from holdfast.engine.approval_expiry import ApprovalExpiry
from holdfast.engine.checkpoint import attempt, intent
from holdfast.engine.embedding import Embedding
from holdfast.engine.interruption import Interruption
from holdfast.engine.worker import Worker
from holdfast.errors import StoreUnavailable
from holdfast.usecases import approval_answers

SEEDS = range(60)
# For what is rare: so many at a time, until it is seen.
MANY_SEEDS = [range(first, first + 20) for first in range(0, 400, 20)]


def play_trace(seed: int, disk: Disk) -> list[str]:
    disk.wipe()
    scenario = Scenario(seed, disk)
    loop.run(scenario.play())
    return scenario.trace


def find_trace(words: str) -> str:
    """The first trace with this violation; only few seeds find a given bug."""
    with closing(iter_violations(range(500))) as told:
        return next(story for story in told if words in story)


def test_a_seed_always_tells_the_same_story() -> None:
    with disks() as disk:
        for seed in SEEDS[:5]:
            assert play_trace(seed, disk) == play_trace(seed, disk)
        assert play_trace(0, disk) != play_trace(1, disk)


def test_a_cancel_that_is_ignored_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Interruption, "trigger", lambda _: None)
    assert "make simulate SEED=" in find_trace("is not heard")


def test_vectors_that_are_never_made_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that a request makes at once would hide it."""

    async def embed_nothing(_: Embedding) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(Embedding, "run", embed_nothing)
    assert "make simulate SEED=" in find_trace("wait for their vectors")


def test_a_deadlock_is_found() -> None:
    with pytest.raises(loop.Stuck):
        loop.run(asyncio.Event().wait())


def test_time_passes_only_when_nothing_else_can_happen() -> None:
    async def waits() -> float:
        await asyncio.sleep(3_600)
        return asyncio.get_running_loop().time()

    assert loop.run(waits()) == pytest.approx(3_600)


def test_most_changes_of_the_lifecycle_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A simulation that does not reach all transitions would not find their bugs."""
    seen: set[str] = set()
    plain = Ledger._check_change

    def record_change(self: Ledger, tx: object, before: object, after: object) -> None:
        was = getattr(before, "status", None)
        seen.add(f"{was} {getattr(after, 'status', None)}")
        plain(self, tx, before, after)  # type: ignore[arg-type] # passed on as it came

    monkeypatch.setattr(Ledger, "_check_change", record_change)
    assert play_all(SEEDS) == []
    wanted = {f"{before} {after}" for (before, _), after in TRANSITIONS.items()}
    assert wanted <= seen


def test_the_store_fails_in_every_way_and_loses_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """And each time the runs of the scenario get on."""
    seen: set[str] = set()
    find_fault, loses_answer = Chance.find_fault, Chance.loses_answer

    def record_fault(self: Chance, *, writes: bool) -> StoreUnavailable | None:
        fault = find_fault(self, writes=writes)
        seen.add(str(fault))
        return fault

    def record_loss(self: Chance) -> bool:
        loses = loses_answer(self)
        seen.add(f"loses: {loses}")
        return loses

    monkeypatch.setattr(Chance, "find_fault", record_fault)
    monkeypatch.setattr(Chance, "loses_answer", record_loss)
    wanted = {
        "The store was out of reach.",
        "The store is out of reach.",
        "The disk is full.",
        "loses: True",
    }
    for seeds in MANY_SEEDS:
        assert play_all(seeds) == []
        if seen >= wanted:
            return
    pytest.fail(f"only {seen} are seen")


def test_contexts_are_made_smaller_for_every_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[str] = set()
    plain = compact._with_summary

    def record_trigger(services: object, state: object, trigger: Trigger, *rest: object) -> object:
        seen.add(trigger)
        return plain(services, state, trigger, *rest)  # type: ignore[arg-type] # passed on as it came

    monkeypatch.setattr(compact, "_with_summary", record_trigger)
    for seeds in MANY_SEEDS:
        assert play_all(seeds) == []
        if seen == set(Trigger):
            return
    pytest.fail(f"only {seen} are seen")


def test_a_context_that_is_cut_in_the_wrong_place_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "_cuts", lambda said: range(1, len(said)))
    assert any(map(play_all, MANY_SEEDS))


def test_a_deadline_that_is_not_kept_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def sleep(*_: object) -> None: ...

    monkeypatch.setattr(ApprovalExpiry, "_expire_one", sleep)
    assert find_trace("have not expired")


def test_a_clock_that_an_answer_does_not_stop_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(approval_answers, "_clear_deadlines", lambda *_: None)
    assert find_trace("became Deadline")


def test_a_bug_whose_error_is_caught_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def raise_error(*_: object) -> None:
        raise ValueError("TEST: a bug")

    monkeypatch.setattr(intent, "_with_started_calls", raise_error)
    assert find_trace("run.interrupted: ValueError")


def test_calls_that_a_run_leaves_to_nobody_as_it_is_given_up_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run_end, "owns_calls", lambda run: run.status in HOLDING)
    assert find_trace(": [] own [OpenCall")


def test_an_error_that_nobody_hears_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one of the store, which the scenario injects: whoever writes must learn what became of it."""

    async def write() -> None:
        raise StoreUnavailable("TEST: nobody awaits this")

    plain = Worker._give_back

    async def leave_task(worker: Worker) -> None:
        asyncio.create_task(write())  # noqa: RUF006 - that it is lost is the point
        await plain(worker)

    monkeypatch.setattr(Worker, "_give_back", leave_task)
    assert find_trace("never retrieved: StoreUnavailable")


def test_a_result_that_an_outage_loses_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def give_up(
        _: object, write: Callable[[], Coroutine[Any, Any, object]], __: str
    ) -> object:
        return await write()

    monkeypatch.setattr(runner, "write_until_stored", give_up)
    assert find_trace("is told as unknown")


def test_a_commit_that_is_repeated_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempt, "_is_stored", lambda *_: False)
    assert any(map(play_all, MANY_SEEDS))
