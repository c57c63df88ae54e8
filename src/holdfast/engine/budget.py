"""Keeping a run within its budget while an effect runs: the meter of an answer, and the time limit.

Between effects the budget is part of the decision, in ``core/turn``.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from msgspec.structs import replace

from holdfast.core import budgets, context
from holdfast.core.budgets import Budget
from holdfast.core.messages import Role
from holdfast.core.prices import Price
from holdfast.core.runs import Run, RunFailure, StopReason, Usage, sum_known
from holdfast.core.turn import EndTurn, end_for_overrun
from holdfast.engine.interruption import Interrupted, Interruption
from holdfast.engine.state import State
from holdfast.ports.clock import Clock
from holdfast.ports.model import (
    ModelEvent,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolOffer,
    UsageUpdate,
)


class Meter:
    """Measures one answer while it arrives, and raises ``Interrupted`` when it exceeds the budget. Usage that the
    provider reports is used as soon as it is there: some providers report the prompt first, most report nothing
    before the end. The rest is estimated, at four bytes a token."""

    def __init__(self, budget: Budget, run: Run, price: Price | None, prompt_tokens: int) -> None:
        if budget.cost is not None and price is None:
            raise Interrupted(_UNPRICED_END)
        self._budget = budget
        self._tokens = run.usage.total_tokens
        self._cost = run.cost
        self._price = price
        self._counted = Usage(prompt_tokens)
        # Of the answer since the last report.
        self._bytes = 0
        self._check()

    def on_event(self, event: ModelEvent) -> None:
        match event:
            case UsageUpdate(usage=usage):
                return self._count(usage)
            case TextDelta(text=text) | ThinkingDelta(text=text):
                self._bytes += len(text.encode())
            case ToolCallDelta(arguments=arguments):
                self._bytes += len(arguments.encode())
        return self._check()

    def _count(self, usage: Usage) -> None:
        self._counted = replace(
            usage, prompt_tokens=usage.prompt_tokens or self._counted.prompt_tokens
        )
        self._bytes = 0
        self._check()

    def _check(self) -> None:
        so_far = self._counted + Usage(0, -(-self._bytes // context.BYTES_PER_TOKEN))
        cost = None if self._price is None else self._price.cost(so_far)
        over = budgets.find_overrun(
            self._budget,
            self._tokens + so_far.total_tokens,
            sum_known(self._cost, cost),
            estimated=True,
        )
        if over is not None:
            raise Interrupted(end_for_overrun(over))


_UNPRICED_END = EndTurn(
    StopReason.ERROR,
    RunFailure(
        "unpriced_model",
        "The run was stopped before it could cost anything.",
        "It has a max_cost, and the price of its model is not known.",
    ),
)


def estimate_prompt_tokens(state: State, offers: tuple[ToolOffer, ...]) -> int:
    """About how many tokens the next question takes: the provider's last count and an estimate of the rows since
    then, or an estimate of everything."""
    history = state.turn.history
    counted = state.turn.progress.context_tokens if state.turn.progress.steps_taken else 0
    if counted:
        answers = [place for place, row in enumerate(history) if row.role is Role.ASSISTANT]
        since = history[answers[-1] + 1 :] if answers else ()
        return counted + sum(map(context.message_tokens, since))
    tools = sum(
        context.estimate_tokens(f"{offer.name}{offer.description}{offer.parameters}")
        for offer in offers
    )
    return tools + sum(map(context.message_tokens, history))


@contextmanager
def time_limit(run: Run, clock: Clock, interruption: Interruption) -> Iterator[None]:
    """Stop the run when its time is over, whatever it is doing. The time counts on if another process resumes it."""
    budget, started_at = run.request.budget, run.started_at
    if budget is None or budget.seconds is None or started_at is None:
        yield
        return
    seconds = budget.seconds

    def used_seconds() -> float:
        return (clock.now() - started_at).total_seconds()

    def stop() -> None:
        # The timer's clock may be a millisecond ahead of the one that the run started by.
        used = max(used_seconds(), seconds)
        interruption.trigger(end_for_overrun(budgets.time_overrun(seconds, used)))

    timer = asyncio.get_running_loop().call_later(max(seconds - used_seconds(), 0), stop)
    try:
        yield
    finally:
        timer.cancel()
