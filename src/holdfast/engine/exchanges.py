"""What a step's model call really was, as it is kept: only where an operator asked for it."""

from holdfast.core.ids import Kind
from holdfast.core.traces import CallType, ProviderTrace, cut, scrubbed
from holdfast.engine.state import State
from holdfast.ports.house import House
from holdfast.ports.model import Exchange


def traces(
    house: House, state: State, exchanges: list[Exchange], call_type: CallType
) -> tuple[ProviderTrace, ...]:
    """The exchanges of the step, without the agent's secrets and no longer than the limit."""
    if state.step is None:
        return ()
    step, secrets, limit = state.step, state.environment.values(), house.limits.max_trace_bytes
    now = house.clock.now()
    return tuple(
        ProviderTrace(
            id=house.ids.mint(Kind.PROVIDER_TRACE),
            organization_id=step.organization_id,
            agent_id=step.agent_id,
            run_id=step.run_id,
            step_id=step.id,
            call_type=call_type,
            model=step.model,
            created_at=now,
            latency_ms=exchange.latency_ms,
            request=cut(scrubbed(exchange.request, secrets), limit),
            response=cut(scrubbed(exchange.response, secrets), limit),
            status_code=exchange.status_code,
            error=scrubbed(exchange.error, secrets),
        )
        for exchange in exchanges
    )
