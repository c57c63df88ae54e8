"""The scripted provider as a process: `python -m holdfast.testing`; it runs until a signal ends it."""

import argparse
import asyncio
import signal

import uvloop

from holdfast.testing.provider import ScriptedProvider
from holdfast.testing.script import Answer, Text


async def _serve(port: int, answer: Answer, models: list[str]) -> None:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    # The requests of another process cannot be read; keeping them would only fill its memory.
    async with ScriptedProvider(port=port, default=answer, models=models, record=False) as provider:
        print(provider.url, flush=True)  # noqa: T201 - the first line is the interface
        await ended.wait()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m holdfast.testing", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0, the default, takes a free one")
    parser.add_argument("--reply", default="Hello from the scripted provider.")
    parser.add_argument(
        "--delay", type=float, default=0.0, help="seconds before each streamed word"
    )
    parser.add_argument("--model", action="append", help="listed at /v1/models; repeatable")
    options = parser.parse_args()
    answer = Answer(Text(options.reply, delay_seconds=options.delay))
    uvloop.run(_serve(options.port, answer, options.model or ["scripted-model"]))


if __name__ == "__main__":
    main()
