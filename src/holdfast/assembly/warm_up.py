"""Loading in the background what the first turn needs, so that neither it nor the start waits for that."""

import gc
import logging

from holdfast.adapters.models.router import ModelRouter

# Allocations between two collections of the youngest objects. A turn allocates many that live until its end;
# with Python's default of 700 the collector would visit them again and again.
GC_THRESHOLD = 20_000

log = logging.getLogger(__name__)


async def warm_up(model: ModelRouter) -> None:
    """Load what the first turn needs while the server already answers. What is loaded then stays in memory for good,
    so the garbage collector need not visit it again. What cannot be loaded now is loaded when it is needed."""
    try:
        await model.warm_up()
    except Exception:
        log.exception("warm_up.failed")
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)
