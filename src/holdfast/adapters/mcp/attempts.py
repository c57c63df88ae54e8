"""When a connection is opened again after it has failed: later each time, until it has been of use."""

import asyncio
from typing import Final

from holdfast.errors import McpError, McpUnauthorized

# How long to wait before each further attempt to connect; the last for ever.
_BACKOFF_SECONDS: Final = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0)


class Attempts:
    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._failed = 0
        # By the clock of the loop.
        self.next_at = 0.0
        self.last_error: McpError | None = None

    @property
    def seconds_left(self) -> float:
        return self.next_at - self._loop.time()

    def fail(self, error: McpError) -> None:
        """There was no session, or one that ended before it was of use."""
        self.last_error = error
        if isinstance(error, McpUnauthorized):
            # The server is well.
            self._failed = 0
            return
        pause = _BACKOFF_SECONDS[min(self._failed, len(_BACKOFF_SECONDS) - 1)]
        self._failed += 1
        self.next_at = self._loop.time() + pause

    def reset(self) -> None:
        """A job got an answer."""
        self._failed, self.last_error = 0, None
