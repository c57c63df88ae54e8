"""The state in which a run ends: its step is closed, its partial answer is kept, and every open call has a result.

Pure. For a run that ends when its work is done there is nothing to do here.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta

from msgspec.structs import replace

from holdfast.core.cancellation import closing_result
from holdfast.core.ids import Kind
from holdfast.core.messages import Outcome
from holdfast.core.runs import StopReason
from holdfast.core.steps import StepStatus
from holdfast.core.turn import EndTurn
from holdfast.engine.progress import EffectResult, PartialAnswer
from holdfast.engine.run_tools import with_results
from holdfast.engine.state import State, with_answer_row
from holdfast.ports.clock import Ids

_MICROSECOND = timedelta(microseconds=1)


def close_state(
    effect: EffectResult, end: EndTurn, now: datetime, ids: Ids
) -> tuple[State, Mapping[str, Outcome]]:
    """The state to store with the end of the run, and what became of the open calls.

    A run that fails keeps nothing of an answer that did not arrive completely; any other run keeps what clients
    have seen of it.
    """
    is_cancelled = end.reason is StopReason.CANCELLED
    has_failed = effect.has_failed and not is_cancelled
    state = _with_step_closed(effect.state, end, now)
    if is_cancelled:
        # A cancelled run leaves the context as it was.
        state = replace(state, pending_compaction=None)
    if is_cancelled or (effect.end is not None and not has_failed):
        state = _with_partial_answer(state, effect.progress.answer, now)
    # Whether a tool was killed by an interruption is known, what an error did to it is not.
    started = Outcome.UNKNOWN if has_failed else Outcome.KILLED
    results = {
        item.call.id: closing_result(
            item,
            started if item.call.id in effect.progress.started_calls else Outcome.NOT_STARTED,
            _how(end),
        )
        for item in state.turn.calls
    }
    if results:
        state = with_results(state, results, row_id=ids.new_id(Kind.MESSAGE), now=now)
    return state, {call_id: result.outcome for call_id, result in results.items()}


def _with_step_closed(state: State, end: EndTurn, now: datetime) -> State:
    """The step ends now if its answer was still awaited."""
    step = state.step
    if step is None or step.status is not StepStatus.PENDING:
        return state
    status = StepStatus.CANCELLED if end.failure is None else StepStatus.FAILED
    spent_ns = (now - step.created_at) // _MICROSECOND * 1_000
    step = replace(
        step, status=status, failure=end.failure, llm_request_ns=spent_ns, step_ns=spent_ns
    )
    return replace(state, step=step)


def _with_partial_answer(state: State, answer: PartialAnswer, now: datetime) -> State:
    """Clients have seen a part of the answer: it is stored as if the model had stopped there."""
    content, calls = answer.content(), answer.calls(parallel=state.policy.parallel)
    if state.step is None or state.has_output or not (content or calls):
        return state
    return with_answer_row(state, answer.message_id, content, calls, now)


def _how(end: EndTurn) -> str:
    if end.overrun is not None:
        return f"had used up its {end.overrun.limit}"
    return "was cancelled" if end.reason is StopReason.CANCELLED else "was stopped"
