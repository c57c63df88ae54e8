"""A server whose run was taken over while it waited for the model: whatever comes then, it writes and starts nothing."""

import asyncio
import logging

import pytest
from tests.doubles.model import call_answer, text_answer
from tests.support.rig import WAIT_SECONDS, Rig
from tests.support.waiting import eventually

from holdfast.adapters.store.sqlite import SqliteStore
from holdfast.ports.model import Answer


@pytest.mark.parametrize("stream_tokens", [False, True], ids=["steps", "tokens"])
@pytest.mark.parametrize(
    "late",
    [text_answer("Too late."), call_answer(("call-late", "hammer"))],
    ids=["an end", "a tool"],
)
async def test_a_late_answer_is_refused_as_that_of_an_earlier_claim(
    store: SqliteStore, caplog: pytest.LogCaptureFixture, late: Answer, *, stream_tokens: bool
) -> None:
    sleeper, successor = Rig(store), Rig(store)
    agent = await sleeper.make_agent("hammer")
    sleeper.model.gate.clear()
    sleeper.model.script.append(late)
    successor.model.script += [call_answer(("call-1", "hammer")), text_answer("In time.")]
    async with sleeper.run_worker():
        run = await sleeper.submit(agent, stream_tokens=stream_tokens)
        await asyncio.wait_for(sleeper.model.asked.wait(), WAIT_SECONDS)
        # Its registration releases the runs of all others.
        async with successor.run_worker():
            await successor.wait_for_end(run)
            before = await successor.context(agent)
            with caplog.at_level(logging.INFO):
                sleeper.model.gate.set()
                await eventually(lambda: "run.fenced" in caplog.messages)
            after = await successor.context(agent)

    assert after == before
    assert after[-1].text == "In time."
    assert sleeper.toolbox.started == []
    assert "run.interrupted" not in caplog.messages
