"""Searching the web: every engine is asked in its own way and answers in the same one."""

import asyncio
import dataclasses
import json
import logging
import re
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

import pytest
from tests.doubles.http_receiver import CannedResponse, Receiver, run_receiver
from tests.support.rig import ACTOR
from tests.support.values import Make
from tests.support.waiting import WAIT_SECONDS

from holdfast.adapters.toolbox.router import ToolRouter
from holdfast.adapters.web.search import MAX_ANSWER_BYTES, SearchOptions
from holdfast.core.messages import Outcome, ToolCall, ToolReturn
from holdfast.core.tools import ToolKind
from holdfast.core.turn import PlannedCall
from holdfast.ports.sandbox import Sandbox
from holdfast.ports.services import Services
from holdfast.ports.toolbox import ToolContext

KEY = "wq7-nobody-may-see-this-55"
# V1's words for this.
MISSING_KEY = (
    "EXA_API_KEY is not set in environment or on agent_state tool execution environment variables."
)

ANSWERS: Mapping[str, Any] = {
    "searxng": {
        "results": [
            {
                "title": "One",
                "url": "https://one.example/a",
                "content": "The first.",
                "publishedDate": "2025-01-02T00:00:00",
            }
        ]
    },
    "brave": {
        "web": {
            "results": [
                {
                    "title": "One",
                    "url": "https://one.example/a",
                    "description": "The first.",
                    "page_age": "2025-01-02T00:00:00",
                }
            ]
        }
    },
    "tavily": {
        "results": [
            {
                "title": "One",
                "url": "https://one.example/a",
                "content": "The first.",
                "published_date": "2025-01-02T00:00:00",
                "score": 0.9,
            }
        ]
    },
    "exa": {
        "results": [
            {
                "title": "One",
                "url": "https://one.example/a",
                "highlights": ["The first."],
                "publishedDate": "2025-01-02T00:00:00",
                "id": "x",
            }
        ]
    },
}
KEY_NAMES = {"brave": "BRAVE_API_KEY", "tavily": "TAVILY_API_KEY", "exa": "EXA_API_KEY"}


class FixedClock:
    def now(self) -> datetime:
        return datetime(2026, 3, 4, tzinfo=UTC)

    def monotonic_ns(self) -> int:
        return 0


@dataclasses.dataclass
class Search:
    """The tool, whose engines are all at one address of this machine."""

    receiver: Receiver
    make: Make
    engine: str | None = None
    configured: tuple[str, ...] = ()

    async def run(self, secrets: Mapping[str, str] | None = None, **arguments: Any) -> ToolReturn:
        options = SearchOptions(
            engine=self.engine,
            searxng_url=f"{self.receiver.url}/searxng/" if "searxng" in self.configured else None,
            keys={KEY_NAMES[name]: KEY for name in self.configured if name != "searxng"},
            addresses={name: f"{self.receiver.url}/{name}" for name in KEY_NAMES},
        )
        router = ToolRouter(
            sandbox=cast("Sandbox", None), timeout_seconds=1, search_options=options
        )
        router.bind(cast("Services", _Services()))
        tool = self.make.tool(name="web_search", kind=ToolKind.BUILTIN)
        context = ToolContext(
            agent_id="agent-1",
            organization_id=ACTOR.organization_id,
            thread_id="agent-1",
            environment=secrets or {},
        )
        call = ToolCall("call-1", "web_search", "{}")
        async with asyncio.timeout(WAIT_SECONDS):
            return await router.run(tool, PlannedCall(call, arguments), context)

    async def find(self, secrets: Mapping[str, str] | None = None, **arguments: Any) -> Any:
        returned = await self.run(secrets, **arguments)
        assert returned.outcome is Outcome.FINISHED, returned.text
        return json.loads(returned.text)

    async def ask(self, engine: str, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        """What the tool returns, and what the engine was asked: the fields of the query, or the body."""
        self.configured = (engine,)
        self.receiver.answers = [answer(engine)]
        found = await self.find(**arguments)
        asked = await self.receiver.next_request()
        fields = {
            name: values[0] for name, values in parse_qs(urlsplit(asked.target).query).items()
        }
        return found, json.loads(asked.body) if asked.body else fields


class _Services:
    clock = FixedClock()


def answer(engine: str) -> CannedResponse:
    return CannedResponse(body=json.dumps(ANSWERS[engine]).encode())


@pytest.fixture
async def search(make: Make) -> AsyncIterator[Search]:
    async with run_receiver() as receiver:
        yield Search(receiver, make)


@pytest.mark.parametrize("engine", [*ANSWERS])
async def test_results_have_the_same_keys_whatever_the_engine(search: Search, engine: str) -> None:
    found, _ = await search.ask(engine, query="the first")

    assert found == {
        "query": "the first",
        "results": [
            {
                "title": "One",
                "url": "https://one.example/a",
                "published_date": "2025-01-02T00:00:00",
                "author": None,
                "highlights": ["The first."],
            }
        ],
    }


@pytest.mark.parametrize(
    ("engine", "header", "value", "path"),
    [
        ("searxng", "accept", "application/json", "/searxng/search"),
        ("brave", "x-subscription-token", KEY, "/brave/res/v1/web/search"),
        ("tavily", "authorization", f"Bearer {KEY}", "/tavily/search"),
        ("exa", "x-api-key", KEY, "/exa/search"),
    ],
)
async def test_each_engine_gets_its_key_where_it_expects_it(
    search: Search, engine: str, header: str, value: str, path: str
) -> None:
    search.configured = (engine,)
    search.receiver.answers = [answer(engine)]

    await search.find(query="q")

    asked = await search.receiver.next_request()
    assert asked.headers[header] == value
    assert asked.headers["user-agent"].startswith("Holdfast/")
    assert asked.target.partition("?")[0] == path
    assert KEY not in asked.target


EVERYTHING: Mapping[str, Any] = {
    "query": "q",
    "num_results": 50,
    "category": "news",
    "include_text": True,
    "include_domains": ["one.example", "two.example"],
    "exclude_domains": ["three.example"],
    "start_published_date": "2025-01-01",
    "end_published_date": "2025-12-31T10:00:00",
    "user_location": "de",
}


@pytest.mark.parametrize(
    ("engine", "asked", "ignored"),
    [
        (
            "searxng",
            {
                "q": "q (site:one.example OR site:two.example) -site:three.example",
                "format": "json",
                "categories": "news",
            },
            ["include_text", "start_published_date", "end_published_date", "user_location"],
        ),
        (
            "brave",
            {
                "q": "q (site:one.example OR site:two.example) -site:three.example",
                "count": "20",
                "country": "DE",
                "freshness": "2025-01-01to2025-12-31",
            },
            ["category", "include_text"],
        ),
        (
            "tavily",
            {
                "query": "q",
                "max_results": 20,
                "topic": "news",
                "include_raw_content": True,
                "include_domains": ["one.example", "two.example"],
                "exclude_domains": ["three.example"],
                "start_date": "2025-01-01",
                "end_date": "2025-12-31",
            },
            ["user_location"],
        ),
        (
            "exa",
            {
                "query": "q",
                "type": "auto",
                "numResults": 50,
                "category": "news",
                "includeDomains": ["one.example", "two.example"],
                "excludeDomains": ["three.example"],
                "startPublishedDate": "2025-01-01",
                "endPublishedDate": "2025-12-31",
                "userLocation": "DE",
                "contents": {
                    "text": {"maxCharacters": 10_000},
                    "highlights": {"query": "q"},
                    "summary": {"query": "q"},
                },
            },
            None,
        ),
    ],
)
async def test_filters_that_an_engine_lacks_are_left_out_and_named(
    search: Search, engine: str, asked: dict[str, Any], ignored: list[str] | None
) -> None:
    found, heard = await search.ask(engine, **EVERYTHING)

    assert heard == asked
    assert found.get("ignored") == ignored
    assert len(found["results"]) == 1


async def test_brave_gets_a_whole_range_of_days(search: Search) -> None:
    _, since = await search.ask("brave", query="q", start_published_date="2026-01-01")
    _, until = await search.ask("brave", query="q", end_published_date="2026-01-01")

    assert since["freshness"] == "2026-01-01to2026-03-04"
    assert until["freshness"] == "1990-01-01to2026-01-01"


@pytest.mark.parametrize("engine", ["searxng", "brave"])
async def test_results_of_other_domains_are_dropped(search: Search, engine: str) -> None:
    wanted, _ = await search.ask(engine, query="q", include_domains=["www.one.example"])
    others, _ = await search.ask(engine, query="q", include_domains=["ne.example"])
    without, _ = await search.ask(engine, query="q", exclude_domains=["one.example"])

    assert [len(found["results"]) for found in (wanted, others, without)] == [1, 0, 0]


async def test_the_number_of_results_is_a_number_from_1_to_100(search: Search) -> None:
    _, many = await search.ask("exa", query="q", num_results=1000)
    few, _ = await search.ask("searxng", query="q", num_results=0)

    assert many["numResults"] == 100
    assert len(few["results"]) == 1


@pytest.mark.tools(66)
async def test_without_an_engine_the_tool_says_what_to_set(search: Search) -> None:
    returned = await search.run(query="q")

    assert returned.outcome is Outcome.FAILED
    assert MISSING_KEY in returned.text
    assert "HOLDFAST_SEARXNG_URL" in returned.text


@pytest.mark.parametrize("query", ["", "  ", None])
async def test_a_blank_query_is_refused_in_v1s_form(search: Search, query: str | None) -> None:
    search.configured = ("exa",)

    assert await search.find(query=query) == {
        "error": "Query cannot be empty",
        "query": query or "",
    }


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"category": "novels"}, "category: 'novels' is none of"),
        ({"start_published_date": "yesterday"}, "Invalid start_published_date format"),
        ({"num_results": "many"}, "num_results must be a whole number"),
        ({"include_text": "perhaps"}, "include_text must be true or false"),
        ({"include_domains": [1]}, "include_domains must be a list of strings"),
    ],
)
async def test_arguments_that_cannot_be_meant_are_explained(
    search: Search, arguments: dict[str, Any], says: str
) -> None:
    search.configured = ("exa",)

    returned = await search.run(query="q", **arguments)

    assert returned.outcome is Outcome.FAILED
    assert says in returned.text


@pytest.mark.parametrize(
    ("named", "configured", "secrets", "asked"),
    [
        (None, ("exa",), {}, "exa"),
        (None, ("exa", "tavily", "brave", "searxng"), {}, "searxng"),
        (None, ("exa", "tavily"), {}, "tavily"),
        ("exa", ("exa", "tavily", "brave", "searxng"), {}, "exa"),
        # An agent's own key wins.
        (None, ("searxng",), {"EXA_API_KEY": "own"}, "exa"),
        ("searxng", ("searxng",), {"BRAVE_API_KEY": "own"}, "brave"),
        ("tavily", ("exa",), {"EXA_API_KEY": "own", "TAVILY_API_KEY": "own"}, "tavily"),
        (None, ("searxng",), {"EXA_API_KEY": " "}, "searxng"),
    ],
)
async def test_the_engine_is_the_agents_own_or_the_one_that_the_operator_chose(
    search: Search,
    named: str | None,
    configured: tuple[str, ...],
    secrets: dict[str, str],
    asked: str,
) -> None:
    search.engine, search.configured = named, configured
    search.receiver.answers = [answer(asked)]

    await search.find(secrets, query="q")

    heard = await search.receiver.next_request()
    assert heard.target.startswith(f"/{asked}/")
    sent = " ".join(heard.headers.values())
    assert "own" in sent if any(value.strip() for value in secrets.values()) else "own" not in sent


async def test_a_named_engine_without_its_key_is_not_replaced(search: Search) -> None:
    """The operator did not want the other one to hear what is searched for."""
    search.engine, search.configured = "brave", ("searxng",)

    assert MISSING_KEY in (await search.run(query="q")).text
    assert search.receiver.all_requests == []


@pytest.mark.parametrize(
    ("response", "says"),
    [
        (CannedResponse(401, body=f"bad key {KEY}!".encode()), "exa answered with HTTP 401: bad key …!"),
        (CannedResponse(429), "exa answered with HTTP 429: ok"),
        (CannedResponse(302, {"Location": "http://127.0.0.1:1/"}, b""), "exa answered with HTTP 302"),
        (CannedResponse(body=b"<html>"), "the answer of exa is not JSON"),
        (CannedResponse(body=b"[" * 100_000), "the answer of exa is not JSON"),
        (CannedResponse(body=b"{}"), "the answer of exa has an unknown form"),
        (CannedResponse(body=b"null"), "the answer of exa has an unknown form"),
        (CannedResponse(body=b'{"results":[1]}'), "the answer of exa has an unknown form"),
        (CannedResponse(body=b'{"results":[{"title":1}]}'), "the answer of exa has an unknown form"),
        (CannedResponse(body=b" " * (MAX_ANSWER_BYTES + 1)), "The answer is larger than"),
    ],
)  # fmt: skip
async def test_an_engine_that_fails_is_a_result_that_says_so(
    search: Search, response: CannedResponse, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    search.configured = ("exa",)
    search.receiver.answers = [response]

    found = await search.find(query="q")

    assert found.keys() == {"query", "error"}
    assert found["error"].startswith("Search failed: ")
    assert says in found["error"]
    assert KEY not in found["error"] + caplog.text


@pytest.mark.parametrize("name", [*KEY_NAMES.values()])
@pytest.mark.parametrize(
    "key", ["top\nsecret", "top\tsecret", "top secret", "töpsecret", "top\x7f"]
)
async def test_what_cannot_be_a_key_is_not_shown_and_not_sent(
    search: Search, name: str, key: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)

    returned = await search.run({name: key}, query="q")

    assert returned.outcome is Outcome.FAILED
    assert returned.text.startswith(f"{name} ")
    assert not {"top", "töp", "secret"} & set(re.findall(r"\w+", returned.text + caplog.text))
    assert search.receiver.all_requests == []


async def test_white_space_around_a_key_does_not_count(search: Search) -> None:
    search.receiver.answers = [answer("exa")]

    await search.find({"EXA_API_KEY": " own\n"}, query="q")

    assert (await search.receiver.next_request()).headers["x-api-key"] == "own"


@pytest.mark.parametrize("engine", ["searxng", "brave"])
async def test_a_query_that_is_too_long_for_an_engine_is_explained(
    search: Search, engine: str
) -> None:
    search.configured = (engine,)
    search.receiver.answers = [answer(engine)]

    for query in ("дом " * 120, "x" * 2100):
        error = (await search.find(query=query))["error"]
        assert error.startswith(f"Search failed: the query is too long for {engine}: ")
        assert "at most 2048 characters" in error
        assert "address" not in error
    assert search.receiver.all_requests == []
    assert "error" not in await search.find(query="дом " * 50)


ODD: Mapping[str, Any] = {
    "searxng": {"url": "u", "title": "a\ud83d", "content": "b\ude00\0", "publishedDate": "\ud83d"},
    "brave": {"url": "u", "title": "a\ud83d", "description": "b\ude00\0", "page_age": "\ud83d"},
    "tavily": {"url": "u", "title": "a\ud83d", "content": "b\ude00\0", "published_date": "\ud83d"},
    "exa": {"url": "u", "title": "a\ud83d", "highlights": ["b\ude00\0"], "publishedDate": "\ud83d"},
}


@pytest.mark.parametrize("engine", [*ODD])
async def test_half_a_surrogate_pair_in_a_result_is_replaced(search: Search, engine: str) -> None:
    """An engine that cuts a text may cut a pair in two. UTF-8 has no halves, so nobody could store or send them."""
    found = {"results": [ODD[engine]]}
    body = json.dumps({"web": found} if engine == "brave" else found)
    search.configured = (engine,)
    search.receiver.answers = [CannedResponse(body=body.encode())]

    returned = await search.run(
        query="q\ud83d", include_domains=[] if engine == "exa" else ["\ud83d"]
    )

    assert returned.text.encode().decode() == returned.text
    shown = json.loads(returned.text)
    assert shown["query"] == "q\ufffd"


@pytest.mark.parametrize("engine", [*ODD])
async def test_what_is_no_text_in_a_result_is_left_out(search: Search, engine: str) -> None:
    deep: Any = 1
    for _ in range(900):
        deep = [deep]
    page = {"url": "https://one.example/", **dict.fromkeys(("title", "author", "summary"), deep)}
    page |= dict.fromkeys(("content", "description", "highlights", "publishedDate"), deep)
    found = {"results": [page]}
    body = json.dumps({"web": found} if engine == "brave" else found)
    search.configured = (engine,)
    search.receiver.answers = [CannedResponse(body=body.encode())]

    assert (await search.find(query="q"))["results"] == [
        {"title": None, "url": "https://one.example/", "published_date": None, "author": None}
    ]


async def test_a_searxng_that_does_not_allow_json_is_explained(search: Search) -> None:
    search.configured = ("searxng",)
    search.receiver.answers = [CannedResponse(403)]

    assert "`json`" in (await search.find(query="q"))["error"]


async def test_an_engine_that_cannot_be_reached_is_named(search: Search, make: Make) -> None:
    async with run_receiver() as gone:
        pass
    search.receiver, search.configured = gone, ("exa",)

    error = (await search.find(query="q"))["error"]

    assert error.startswith("Search failed: 127.0.0.1 gave no answer")


async def test_cancelling_closes_the_request(search: Search) -> None:
    search.configured = ("exa",)
    search.receiver.answers = [None]

    running = asyncio.create_task(search.run(query="q"))
    await search.receiver.next_request()
    (serving,) = search.receiver._hanging
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    # The receiver waits for the end of the connection.
    async with asyncio.timeout(WAIT_SECONDS):
        await serving


def test_options_do_not_show_their_keys() -> None:
    assert KEY not in repr(SearchOptions(keys={"EXA_API_KEY": KEY}))
