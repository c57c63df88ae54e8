"""The usage of an effect that did not complete, added to its step and its run."""

from msgspec.structs import replace

from holdfast.core.runs import Usage, sum_known
from holdfast.engine.progress import EffectProgress
from holdfast.engine.state import State, with_usage
from holdfast.ports.services import Services


async def with_partial_usage(services: Services, state: State, progress: EffectProgress) -> State:
    """The state with the usage of the complete answers, and with what the provider had reported of an interrupted
    one, which is paid for too. Usage that was not reported is not estimated."""
    usage, cost = progress.usage + progress.partial_usage, progress.cost
    if state.step is None or usage == Usage():
        return state
    choice = progress.choice or state.step.model
    if progress.partial_usage != Usage():
        price = await services.prices.find(choice)
        cost = sum_known(cost, None if price is None else price.cost(progress.partial_usage))
    step = replace(state.step, model=choice, usage=usage, cost=cost)
    return with_usage(replace(state, step=step), usage, cost)
