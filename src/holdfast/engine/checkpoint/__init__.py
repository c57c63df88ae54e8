"""A checkpoint writes, in one transaction, what an effect has produced and which command begins next, or the run's end.

A tool call is stored as started, and a step as pending, before the effect begins (write-ahead). Nothing is decided
here: the command comes from ``core/turn.next_command``, by way of the runner.
"""

from holdfast.engine.checkpoint.attempt import CheckpointAttempt
from holdfast.engine.checkpoint.checkpoints import CheckpointResult, Checkpoints

__all__ = ["CheckpointAttempt", "CheckpointResult", "Checkpoints"]
