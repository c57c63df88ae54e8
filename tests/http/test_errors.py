"""Each error has its status and its body (wire-v1 §1.11)."""

import json
import logging
from collections.abc import Callable
from typing import Any

import pytest
from fastapi import FastAPI
from httpx import AsyncClient

from holdfast import errors, logs
from holdfast.core.ids import DEFAULT_ORGANIZATION_ID
from holdfast.core.runs import RunFailure
from holdfast.http.app import HttpSettings, build_app
from holdfast.http.dependencies import ActorDep
from holdfast.http.error_status import ERROR_STATUS, error_response
from holdfast.http.letta_v1.to_wire.errors import failure_response
from holdfast.http.letta_v1.wire import LETTA_V1
from holdfast.ports.services import Services

AGENT = "agent-123e4567-e89b-42d3-8456-426614174000"


def _all_errors() -> list[type[errors.HoldfastError]]:
    found: list[type[errors.HoldfastError]] = [errors.HoldfastError]
    for error in found:
        found.extend(error.__subclasses__())
    return [error for error in found if error.__module__ == "holdfast.errors"]


@pytest.mark.parametrize("error", _all_errors())
def test_every_error_has_its_own_row(error: type[errors.HoldfastError]) -> None:
    assert error in ERROR_STATUS


def _render_error(error: errors.HoldfastError) -> tuple[int, Any, str | None]:
    response = error_response(LETTA_V1, error)
    body = json.loads(bytes(response.body))
    return response.status_code, body, response.headers.get("x-should-retry")


def test_a_pending_approval_names_the_request_and_is_not_resent() -> None:
    status, body, retry = _render_error(errors.PendingApproval("message-1"))
    assert status == 409
    assert body["detail"]["code"] == "PENDING_APPROVAL"
    assert body["detail"]["pending_request_id"] == "message-1"
    assert body["detail"]["message"].startswith("CONFLICT: Cannot send a new message: The agent is")
    assert retry == "false"


def test_a_busy_thread_names_its_run_and_may_be_tried_again() -> None:
    status, body, retry = _render_error(errors.ThreadBusy("run-1"))
    assert (status, body["run_id"], retry) == (409, "run-1", None)
    assert body["detail"].startswith("Cannot send a new message: Another request (run_id=run-1)")
    assert "run_id" not in _render_error(errors.ThreadBusy(None))[1]


@pytest.mark.parametrize(
    ("error", "status", "text", "retry"),
    [
        (errors.CallerError("Invalid tool call IDs."), 400, "Invalid tool call IDs.", None),
        (errors.InvalidArgument("no"), 400, "INVALID_ARGUMENT: no", None),
        (errors.NotFound("Agent not found"), 404, "Agent not found", None),
        (errors.UnknownModel("Handle h not found"), 404, "NOT_FOUND: Handle h not found", None),
        (errors.Conflict("nothing"), 409, "CONFLICT: nothing", "false"),
        (errors.AlreadyExists("taken"), 409, "taken", "false"),
        (errors.MethodRetired("gone"), 405, "gone", None),
        (errors.StoreUnavailable("no answer"), 503, "no answer", None),
        (errors.DiskFull("no room"), 503, "no room", None),
        (errors.OutcomeUnknown("who knows"), 503, "who knows", "false"),
        (errors.Bug("our secret"), 500, "An unknown error occurred", "false"),
        (errors.IllegalTransition("our secret"), 500, "An unknown error occurred", "false"),
    ],
)
def test_plain_errors_have_a_detail_alone(
    error: errors.HoldfastError, status: int, text: str, retry: str | None
) -> None:
    assert _render_error(error) == (status, {"detail": text}, retry)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.ModelTimedOut, 504),
        (errors.ModelRateLimited, 429),
        (errors.ModelAuthFailed, 401),
        (errors.ModelOutOfCredits, 402),
        (errors.ModelRejectedRequest, 400),
        (errors.ModelAnswerEmpty, 500),
        (errors.ModelError, 500),
    ],
)
def test_a_model_error_and_a_run_that_it_ended_look_the_same(
    error: type[errors.ModelError], status: int
) -> None:
    expected = {"error": {"type": error.kind, "message": error.summary, "detail": "its words"}}
    assert _render_error(error("its words"))[:2] == (status, expected)
    failed = failure_response(RunFailure(error.kind, error.summary, "its words"), "run-1")
    told = json.loads(bytes(failed.body))
    assert (failed.status_code, told) == (status, expected | {"run_id": "run-1"})


@pytest.mark.parametrize(
    ("error", "status", "start"),
    [
        (errors.ModelOverloaded, 503, "The LLM model provider is overloaded."),
        (errors.ContextWindowExceeded, 400, "CONTEXT_WINDOW_EXCEEDED: The conversation"),
    ],
)
def test_two_model_errors_are_plain(
    error: type[errors.ModelError], status: int, start: str
) -> None:
    answered, body, _ = _render_error(error("its words"))
    assert answered == status
    assert body["detail"].startswith(start)
    assert body["detail"].endswith("its words")


def test_a_run_that_failed_within_is_not_resent_and_says_why() -> None:
    failure = RunFailure("internal_error", "It broke.", "TEST: Mocked error")
    failed = failure_response(failure, "run-1")
    assert failed.status_code == 500
    assert json.loads(bytes(failed.body)) == {
        "detail": "It broke. TEST: Mocked error",
        "run_id": "run-1",
    }
    assert failed.headers["x-should-retry"] == "false"


async def test_a_malformed_path_id_is_explained_with_an_example(client: AsyncClient) -> None:
    answer = await client.get("/v1/tools/nope")
    assert answer.status_code == 422
    body = answer.json()
    assert body["trace_id"] == ""
    assert "\"String should match pattern 'tool-{uuid4}'\"" in body["detail"]
    assert body["detail"].startswith(
        "[{'type': 'string_pattern_mismatch', 'loc': ('path', 'tool_id'), 'msg': "
    )
    assert "'input': 'nope'" in body["detail"]
    assert body["examples"] == ["tool-123e4567-e89b-42d3-8456-426614174000"]


async def test_other_validation_errors_have_no_examples(client: AsyncClient) -> None:
    answer = await client.get("/v1/tools/", params={"limit": 0})
    assert answer.status_code == 422
    assert set(answer.json()) == {"trace_id", "detail"}
    assert isinstance(answer.json()["detail"], str)


async def test_unknown_paths_and_methods(client: AsyncClient) -> None:
    for path in ("/", "/v1", "/v1/nothing", "/v1/tools/a/b/c"):
        answer = await client.get(path)
        assert (answer.status_code, answer.json()) == (404, {"detail": "Not Found"})
    answer = await client.delete("/v1/tools/")
    assert (answer.status_code, answer.json()) == (405, {"detail": "Method Not Allowed"})
    assert answer.headers["allow"] == "GET, POST, PUT"


@pytest.mark.parametrize(
    ("request_line", "allowed"),
    [
        ("DELETE /v1/tools/count", "GET"),
        ("PATCH /v1/agents/count", "GET"),
        ("PATCH /v1/agents/{agent}/messages/async", "POST"),
        ("OPTIONS /v1/agents/{agent}/core-memory/blocks/attach/{block}", "PATCH"),
        ("PUT /docs", "GET, HEAD"),
    ],
)
async def test_a_path_that_also_has_the_form_of_another_allows_its_own_methods_alone(
    client: AsyncClient, request_line: str, allowed: str
) -> None:
    ids = {kind: f"{kind}-00000000-0000-4000-8000-000000000000" for kind in ("agent", "block")}
    method, path = request_line.format(**ids).split()

    answer = await client.request(method, path)

    assert (answer.status_code, answer.headers["allow"]) == (405, allowed)


async def test_a_malformed_acting_user_is_an_invalid_argument(client: AsyncClient) -> None:
    answer = await client.get("/v1/tools/", headers={"user_id": "bob"})
    assert answer.status_code == 400
    assert answer.json()["detail"].startswith("INVALID_ARGUMENT: Invalid user ID format: bob")


async def test_an_unexpected_error_says_nothing_of_itself(
    services: Services, connect: Callable[[FastAPI], AsyncClient], caplog: pytest.LogCaptureFixture
) -> None:
    app = build_app(services, HttpSettings())

    @app.get("/v1/broken/")
    async def raise_error() -> None:
        raise RuntimeError("our secret")

    async with connect(app) as client:
        answer = await client.get("/v1/broken")
    assert (answer.status_code, answer.json()) == (500, {"detail": "An unknown error occurred"})
    assert "our secret" in caplog.text


async def test_a_failed_request_is_logged_with_who_asked(
    services: Services, connect: Callable[[FastAPI], AsyncClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[dict[str, Any]] = []
    handler = logging.Handler()
    form = logs.JsonFormatter()
    monkeypatch.setattr(
        handler, "emit", lambda record: lines.append(json.loads(form.format(record)))
    )
    log = logging.getLogger("holdfast")
    log.addHandler(handler)

    app = build_app(services, HttpSettings())

    @app.get("/v1/broken/")
    async def raise_error(actor: ActorDep) -> None:
        raise RuntimeError(actor.user_id)

    user_id = "user-00000000-0000-4000-8000-000000000007"
    async with connect(app) as client:
        await client.get("/v1/broken", headers={"user_id": user_id})
    log.removeHandler(handler)
    (line,) = lines
    logged = (line["event"], line["level"], line["method"], line["path"])
    assert logged == ("request.failed", "error", "GET", "/v1/broken/")
    assert (line["user_id"], line["organization_id"]) == (user_id, DEFAULT_ORGANIZATION_ID)
    assert line["exception"].endswith(f"RuntimeError: {user_id}")
