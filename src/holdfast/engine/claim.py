"""Beginning a queued run: loading its state for its first checkpoint, which marks it as running."""

from msgspec.structs import replace

from holdfast.core.approvals import pending_approval
from holdfast.core.messages import decisions_by_call
from holdfast.core.runs import Run, RunFailure, StopReason
from holdfast.core.turn import EndTurn
from holdfast.engine.event_writer import RESERVED_AHEAD
from holdfast.engine.progress import EffectProgress, EffectResult
from holdfast.engine.state import State, load_state, with_calls
from holdfast.ports.services import Services
from holdfast.ports.store import Transaction


def load_queued(tx: Transaction, services: Services, run: Run) -> EffectResult:
    """The run that begins now."""
    reserved = RESERVED_AHEAD if run.request.stream_tokens else 0
    now = services.clock.now()
    state = load_state(tx, services, replace(run, started_at=now, reserved_seq=reserved))
    if state.turn.calls and not run.is_answer:
        # The open calls belong to another run, so they are not part of this one's state.
        end = EndTurn(StopReason.ERROR, _pending_approval(state))
        return EffectResult(with_calls(state, ()), EffectProgress(), end, has_failed=True)
    return EffectResult(state, EffectProgress())


def _pending_approval(state: State) -> RunFailure:
    error = pending_approval(state.turn.calls, decisions_by_call(state.turn.history))
    return RunFailure(
        "pending_approval", str(error), str(error), error.pending_request_id, error.calls
    )
