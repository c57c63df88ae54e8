"""A server under mixed load for a long time: ``python -m tests.soak --minutes 30``. Exits with 1 if something grows.

Everything is on loopback and in a temporary folder; the server and the model provider end with it.
"""

import argparse
import asyncio
import random
import sys
import tempfile
from pathlib import Path

from tests.soak.soak import Plan, Result, run_soak
from tests.soak.table import render_idle_table, render_table


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30, help="how long the load lasts")
    parser.add_argument("--clients", type=int, default=6, help="how many clients there are")
    parser.add_argument("--sample-seconds", type=float, default=5, help="between two samples")
    parser.add_argument("--seed", type=int, help="of the order in which the clients do things")
    parser.add_argument("--sandbox", default="plain", help="the level of the sandbox")
    chosen = parser.parse_args()
    plan = Plan(
        seconds=chosen.minutes * 60,
        clients=chosen.clients,
        sample_seconds=chosen.sample_seconds,
        seed=random.randrange(2**32) if chosen.seed is None else chosen.seed,
        sandbox=chosen.sandbox,
    )
    with tempfile.TemporaryDirectory(prefix="holdfast-soak-") as folder:
        result = asyncio.run(run_soak(plan, Path(folder)))
    return _report(plan, result)


def _report(plan: Plan, result: Result) -> int:
    lines, growing = render_table(result.samples)
    idle_lines, idle_growing = render_idle_table(result.idle_before, result.idle_after)
    problems = [f"{name} grows" for name in (*growing, *idle_growing)]
    problems += [f"unexpected: {text}" for text in result.record.surprises]
    played = ", ".join(f"{name} {count}" for name, count in sorted(result.record.played.items()))
    turns = result.samples[-1].turns - result.samples[0].turns
    parts = [
        f"{plan.seconds / 60:g} minutes, {plan.clients} clients, seed {plan.seed}: {turns:.0f} turns",
        f"{played}; unexpected answers: {result.record.surprise_count}",
        "\n".join(lines),
        "\n".join(idle_lines),
        "\n".join(problems) or "Nothing grows.",
    ]
    sys.stdout.write("\n\n".join(parts) + "\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
