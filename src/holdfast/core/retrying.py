"""How long to wait before a model is asked again after a transient failure. Pure."""

from zlib import crc32

# The wait before the second attempt; each further one is twice as long.
FIRST_WAIT_SECONDS = 0.5


def retry_wait_seconds(
    attempt: int, *, requested_seconds: float | None, remaining_seconds: float, seed: str
) -> float | None:
    """How long to wait before this attempt (the second is 2); None if there is no time for it.

    A wait that the provider has requested is never shortened. Other waits have a random part, so that runs which
    failed together do not retry together. The randomness comes from the seed, the id of the step.
    """
    chance = crc32(f"{seed} {attempt}".encode()) / 2**32
    if requested_seconds is None:
        wait = FIRST_WAIT_SECONDS * 2.0 ** (attempt - 2) * (1 + chance) / 2
    else:
        wait = requested_seconds + FIRST_WAIT_SECONDS * chance
    return wait if wait <= remaining_seconds else None
