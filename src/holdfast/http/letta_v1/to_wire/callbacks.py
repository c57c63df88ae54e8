"""The body of a callback about a run (wire-v1 §5.6)."""

from collections.abc import Sequence
from datetime import UTC

import msgspec
from msgspec.structs import replace

from holdfast.core.events import RunEnded
from holdfast.core.messages import Message
from holdfast.core.runs import Run
from holdfast.http.letta_v1.to_wire.replies import letta_response
from holdfast.http.letta_v1.to_wire.runs import api_run
from holdfast.usecases.messages import Reply

_encoder = msgspec.json.Encoder()


def callback_body(run: Run, rows: Sequence[Message], ended: RunEnded) -> bytes:
    """The run as it is now: if it waited for an approval, it may have been cancelled since."""
    shown = api_run(run)
    ended = replace(ended, stop_reason=run.stop_reason or ended.stop_reason)
    result = letta_response(Reply(run, tuple(rows), ended))
    completed_at = run.completed_at and run.completed_at.astimezone(UTC).replace(tzinfo=None)
    return _encoder.encode(
        {
            "run_id": run.id,
            "status": shown.status,
            # Without an offset, as in V1.
            "completed_at": completed_at,
            "metadata": shown.metadata | {"result": result},
        }
    )
