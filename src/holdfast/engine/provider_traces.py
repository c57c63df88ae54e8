"""The provider's requests and responses of a step, as they are stored if the server is set to keep them."""

from holdfast.core.ids import Kind
from holdfast.core.traces import CallType, ProviderTrace, remove_secrets, truncate
from holdfast.engine.state import State
from holdfast.ports.model import Exchange
from holdfast.ports.services import Services


def build_traces(
    services: Services, state: State, exchanges: list[Exchange], call_type: CallType
) -> tuple[ProviderTrace, ...]:
    """The exchanges of the step without the agent's secrets, truncated to the limit."""
    if state.step is None:
        return ()
    step, secrets, limit = state.step, state.environment.values(), services.limits.max_trace_bytes
    now = services.clock.now()
    return tuple(
        ProviderTrace(
            id=services.ids.new_id(Kind.PROVIDER_TRACE),
            organization_id=step.organization_id,
            agent_id=step.agent_id,
            run_id=step.run_id,
            step_id=step.id,
            call_type=call_type,
            model=step.model,
            created_at=now,
            latency_ms=exchange.latency_ms,
            request=truncate(remove_secrets(exchange.request, secrets), limit),
            response=truncate(remove_secrets(exchange.response, secrets), limit),
            status_code=exchange.status_code,
            error=remove_secrets(exchange.error, secrets),
        )
        for exchange in exchanges
    )
