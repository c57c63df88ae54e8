"""What is imported in threads is imported one at a time."""

import asyncio
import threading

from holdfast.loading import load_in_thread

MOMENT_SECONDS = 0.05


async def test_two_loads_are_never_under_way_at_once() -> None:
    """Each load waits at a barrier for the other; it breaks because they never run at the same time."""
    meeting = threading.Barrier(2)

    def meet_other_load() -> bool:
        try:
            meeting.wait(MOMENT_SECONDS)
        except threading.BrokenBarrierError:
            return False
        return True

    assert not any(
        await asyncio.gather(load_in_thread(meet_other_load), load_in_thread(meet_other_load))
    )


async def test_what_a_load_returns_and_raises_comes_back() -> None:
    assert await load_in_thread(divmod, 7, 2) == (3, 1)
    (failed,) = await asyncio.gather(load_in_thread(int, "x"), return_exceptions=True)
    assert isinstance(failed, ValueError)
