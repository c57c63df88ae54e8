"""Who may change a run: its server alone, but for a few things that any server may do."""

from typing import Protocol

from msgspec.structs import asdict

from holdfast.core.runs import Run, RunStatus

_UNDER_WAY = (RunStatus.RUNNING, RunStatus.CANCELLING)
# What any server may change of a run that is under way: a cancel, and whose it is.
_OUTSIDE_FIELDS = {"status", "cancellation", "owner_id", "fence", "metadata", "callback"}


class Judge(Protocol):
    def expect(self, holds: object, what: str, *values: object) -> None: ...


def check_outside_change(judge: Judge, before: Run, after: Run, *, is_own: bool) -> None:
    """``is_own``: whether the server that has the run wrote this."""
    judge.expect(after.fence >= before.fence, f"the fence of {after.id} has fallen")
    if after.owner_id != before.owner_id:
        # Whoever gets the run, or gives it back, shuts out all earlier writers.
        judge.expect(after.fence > before.fence, f"{after.id} has another owner and the same fence")
    if is_own:
        return
    if before.status is RunStatus.QUEUED:
        judge.expect(after.status is not RunStatus.RUNNING, f"{after.id} was begun by no owner")
    if before.status not in _UNDER_WAY:
        return
    old, new = asdict(before), asdict(after)
    changed = {name for name in old if old[name] != new[name]} - _OUTSIDE_FIELDS
    judge.expect(not changed, f"{changed} of {after.id} were changed by no owner")
    is_cancel = after.status in (before.status, RunStatus.CANCELLING)
    judge.expect(is_cancel, f"{after.id} was ended by no owner")
