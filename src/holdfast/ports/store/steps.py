"""Steps of runs."""

from collections.abc import Sequence
from typing import Protocol

from holdfast.core.prices import Costs
from holdfast.core.steps import Step, StepQuery


class Steps(Protocol):
    def add(self, step: Step) -> None:
        """Store a new step."""
        ...

    def save(self, step: Step) -> None:
        """Replace the step except ``feedback``, ``tags`` and ``transaction_id``, which callers may set while the step
        is in progress."""
        ...

    def set_feedback(
        self,
        organization_id: str,
        step_id: str,
        feedback: str | None,
        tags: tuple[str, ...] | None,
    ) -> Step:
        """Set the step's feedback and, unless they are None, its tags. Raises NotFound as ``get`` does."""
        ...

    def set_transaction_id(self, organization_id: str, step_id: str, transaction_id: str) -> Step:
        """Set the step's ``transaction_id``. Raises NotFound as ``get`` does."""
        ...

    def get(self, organization_id: str, step_id: str) -> Step:
        """Return the step. NotFound: ``Step with ID <id> not found``."""
        ...

    def list(self, organization_id: str, query: StepQuery) -> Sequence[Step]:
        """Return one page of the steps that match."""
        ...

    def list_pending(self, run_id: str) -> Sequence[Step]:
        """Return the steps of the run that are in progress, oldest first."""
        ...

    def sum_costs(self, organization_id: str, query: StepQuery) -> Costs:
        """Add up what all steps that match cost, on all pages."""
        ...
