"""What an effect has used up, on record with its step and its run, whether or not it came to its end."""

from msgspec.structs import replace

from holdfast.core.runs import Usage, sum_known
from holdfast.engine.progress import EffectProgress
from holdfast.engine.state import State
from holdfast.ports.services import Services


async def with_partial_usage(services: Services, state: State, progress: EffectProgress) -> State:
    """The state with the answers that there were, and with what the provider had counted of one that was cut short:
    it is paid for. Where nothing was counted nothing is guessed."""
    usage, cost = progress.usage + progress.partial_usage, progress.cost
    if state.step is None or usage == Usage():
        return state
    choice = progress.choice or state.step.model
    if progress.partial_usage != Usage():
        price = await services.prices.find(choice)
        cost = sum_known(cost, None if price is None else price.cost(progress.partial_usage))
    run = state.run
    return replace(
        state,
        step=replace(state.step, model=choice, usage=usage, cost=cost),
        run=replace(run, usage=run.usage + usage, cost=sum_known(run.cost, cost)),
    )
