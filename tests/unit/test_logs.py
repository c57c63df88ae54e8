"""A log record is a named event with fields, always on one line, and never contains a secret."""

import asyncio
import json
import logging
import sys
from typing import Any

import pytest

from holdfast import logs
from holdfast.config import Settings


def record(
    event: str = "run.ended", name: str = "holdfast.engine", exc_info: Any = None, **extra: Any
) -> logging.LogRecord:
    made = logging.LogRecord(name, logging.INFO, "file.py", 1, event, (), exc_info)
    vars(made).update(extra)
    made.created, made.msecs = 1_769_719_444.123, 123.0
    return made


def make_exc_info(text: str) -> Any:
    try:
        int(text)
    except ValueError:
        return sys.exc_info()


def as_json(*args: Any, **extra: Any) -> dict[str, Any]:
    line = logs.JsonFormatter().format(record(*args, **extra))
    assert "\n" not in line
    told: dict[str, Any] = json.loads(line)
    return told


def test_a_line_reads_as_event_and_fields() -> None:
    line = logs.EventFormatter().format(record(status="completed", steps=2))
    assert line == "2026-01-29T20:44:04.123Z INFO run.ended status=completed steps=2"


def test_a_line_is_an_object_for_machines() -> None:
    assert as_json(status="completed", steps=2) == {
        "time": "2026-01-29T20:44:04.123Z",
        "level": "info",
        "event": "run.ended",
        "status": "completed",
        "steps": 2,
    }


def test_a_field_cannot_pass_for_another_line_or_another_field() -> None:
    line = logs.EventFormatter().format(record(why="x\n2026 ERROR fake a=b"))
    assert line.endswith(r'why="x\n2026 ERROR fake a=b"')


def test_a_traceback_is_a_field_for_machines() -> None:
    assert as_json(exc_info=make_exc_info("oh no"))["exception"].endswith("'oh no'")


def test_a_field_cannot_take_the_place_of_the_event() -> None:
    assert as_json(event_="x", level="mine")["level"] == "info"


def test_the_message_of_a_library_is_logged_as_a_message() -> None:
    told = as_json("Retrying in %s", name="openai._base_client")
    assert told["event"] == "library.openai._base_client"
    assert told["message"] == "Retrying in %s"


def test_no_secret_setting_is_ever_written(tmp_path: Any) -> None:
    settings = Settings.read(
        {
            "HOLDFAST_PASSWORD": "pass-word",
            "OPENAI_API_KEY": "sk-secret",
            "HOLDFAST_DATABASE_URL": "postgresql://me:p%40ss-db@host/name",
        },
        home=tmp_path,
    )
    for form in (logs.EventFormatter, logs.JsonFormatter):
        line = form(settings.secrets).format(
            record(why="pass-word sk-secret", exc_info=make_exc_info("p%40ss-db or p@ss-db"))
        )
        assert not [word for word in ("pass-word", "sk-secret", "ss-db") if word in line]


async def test_whom_it_is_about_is_bound_to_a_task_and_those_that_it_starts() -> None:
    async def read_ids_of_run(run_id: str) -> list[str | None]:
        logs.bind(run_id=run_id)
        await asyncio.sleep(0)
        inner = asyncio.create_task(read_bound_run_id())
        logs.bind(run_id=None)
        return [await inner, await read_bound_run_id()]

    async def read_bound_run_id() -> str | None:
        return as_json().get("run_id")

    both = await asyncio.gather(read_ids_of_run("run-1"), read_ids_of_run("run-2"))
    assert [*both] == [["run-1", None], ["run-2", None]]
    assert await read_bound_run_id() is None


@pytest.mark.parametrize("form", logs.FORMATS)
def test_the_server_writes_the_form_that_was_chosen(
    form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    try:
        logs.set_up("info", form)
        logging.getLogger("holdfast.test").info("test.done", extra={"count": 1})
    finally:
        root.handlers[:], root.level = before, level
    (line,) = capsys.readouterr().err.splitlines()
    assert ("count=1" in line, '"count":1' in line) == (form == "text", form == "json")
