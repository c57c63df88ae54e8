"""Three servers that are killed, paused and stopped under mixed load: ``python -m tests.chaos --minutes 10``.

Exits with 1 if a message is lost, a tool was started twice, a run does not end, or a stream or history is wrong.
Everything is on loopback and in a temporary folder; servers, PostgreSQL and the model provider end with it.
"""

import argparse
import random
import sys
import tempfile
from pathlib import Path

from tests.chaos.chaos import Plan, Result, run_chaos

_FIGURES = (
    "kills",
    "pauses",
    "stops",
    "turns",
    "recoveries",
    "tools started",
    "refused",
    "broken streams",
    "violations",
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10, help="how long it lasts")
    parser.add_argument("--clients", type=int, default=6, help="how many clients there are")
    parser.add_argument("--seed", type=int, help="of what is done, to whom, and when")
    parser.add_argument("--redis", action="store_true", help="let the servers share a Redis, too")
    chosen = parser.parse_args()
    seed = random.randrange(2**32) if chosen.seed is None else chosen.seed
    plan = Plan(chosen.minutes * 60, chosen.clients, seed, has_redis=chosen.redis)
    with tempfile.TemporaryDirectory(prefix="holdfast-chaos-") as folder:
        # Tools may run as another user.
        Path(folder).chmod(0o755)
        result = run_chaos(plan, Path(folder))
    return _report(plan, result)


def _report(plan: Plan, result: Result) -> int:
    lines = [f"{plan.seconds / 60:g} minutes, {plan.clients} clients, seed {plan.seed}", ""]
    lines += [f"{name:<16}{result.counts[name]:>8}" for name in _FIGURES]
    stories = {name: count for name, count in sorted(result.counts.items()) if ": " in name}
    lines += ["", ", ".join(f"{name[7:]} {count}" for name, count in stories.items()), ""]
    lines += result.violations or ["Nothing is lost, and nothing happened twice."]
    sys.stdout.write("\n".join(lines) + "\n")
    return 1 if result.violations else 0


if __name__ == "__main__":
    sys.exit(main())
