"""Provider traces: requests to model providers and their answers, if the operator wants them stored."""

from collections.abc import Sequence
from typing import Protocol

from holdfast.core.traces import ProviderTrace


class Traces(Protocol):
    def add(self, traces: Sequence[ProviderTrace]) -> None:
        """Store new traces. They are deleted with their step."""
        ...

    def list_of_step(self, organization_id: str, step_id: str) -> Sequence[ProviderTrace]:
        """Return the traces of the step, in the order of the requests."""
        ...
