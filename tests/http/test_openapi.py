"""The description of the API is complete and fits what is answered."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from fastapi import FastAPI
from httpx import AsyncClient

from holdfast.http.app import HttpSettings, build_app


@pytest.fixture
def description(app: FastAPI) -> dict[str, Any]:
    return app.openapi()


def _operations(description: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [
        (f"{method.upper()} {path}", operation)
        for path, methods in description["paths"].items()
        for method, operation in methods.items()
    ]


def test_every_operation_says_what_it_answers(description: dict[str, Any]) -> None:
    silent = [
        name
        for name, operation in _operations(description)
        if "204" not in operation["responses"]
        and not any(
            # A stream of events has a media type and no schema: OpenAPI has no word for its lines.
            media.get("schema") or kind == "text/event-stream"
            for status, response in operation["responses"].items()
            for kind, media in response.get("content", {}).items()
            if status.isdecimal()
        )
    ]
    assert silent == []


def test_every_operation_documents_its_errors(description: dict[str, Any]) -> None:
    for name, operation in _operations(description):
        assert {"4XX", "5XX"} <= operation["responses"].keys(), name


def test_operations_have_names_of_their_own(description: dict[str, Any]) -> None:
    names = [operation["operationId"] for _, operation in _operations(description)]
    assert len(names) == len(set(names))


def test_every_reference_leads_somewhere(description: dict[str, Any]) -> None:
    schemas = description["components"]["schemas"]
    assert {ref.rsplit("/", 1)[1] for ref in _references(description)} <= schemas.keys()


def test_no_placeholder_is_left(description: dict[str, Any]) -> None:
    assert "x-documented-type" not in str(description)


def test_it_says_which_operations_need_the_password() -> None:
    assert "security" not in build_app(None, HttpSettings()).openapi()

    description = build_app(None, HttpSettings(password="sesame")).openapi()

    assert description["security"] == [{"password": []}]
    open_operations = {
        name for name, operation in _operations(description) if operation.get("security") == []
    }
    # The browser of somebody who has logged in elsewhere comes back without the password.
    callback = "GET /v1/tools/mcp/oauth/callback"
    assert open_operations == {"GET /v1/health/", "GET /v1/ready/", callback}


def test_it_says_that_a_reader_of_a_run_may_have_no_cursor(description: dict[str, Any]) -> None:
    cursor = description["components"]["schemas"]["ResumeBody"]["properties"]["starting_after"]
    assert {"type": "null"} in cursor["anyOf"]


async def test_it_is_served(client: AsyncClient) -> None:
    served = (await client.get("/openapi.json")).json()
    assert served["info"]["title"] == "Holdfast"
    again = (await client.get("/openapi.json")).json()
    assert served == again


async def test_it_is_made_once_and_not_on_the_event_loop(
    connect: Callable[[FastAPI], AsyncClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes half a second, in which the server would answer nobody."""
    app = build_app(None, HttpSettings())
    makers = []
    make = app._make_openapi  # type: ignore[attr-defined] # of our own class

    def note_thread() -> dict[str, Any]:
        makers.append(threading.current_thread())
        document: dict[str, Any] = make()
        return document

    monkeypatch.setattr(app, "_make_openapi", note_thread)
    async with connect(app) as client:
        answers = await asyncio.gather(*(client.get("/openapi.json") for _ in range(3)))

    assert len(makers) == 1
    assert threading.main_thread() not in makers
    assert len({answer.text for answer in answers}) == 1
    assert "x-documented-type" not in answers[0].text


def _references(node: Any) -> list[str]:
    if isinstance(node, dict):
        own = [node["$ref"]] if isinstance(node.get("$ref"), str) else []
        return own + [ref for inner in node.values() for ref in _references(inner)]
    if isinstance(node, list):
        return [ref for inner in node for ref in _references(inner)]
    return []
