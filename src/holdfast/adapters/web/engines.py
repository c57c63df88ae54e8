"""The engines that ``web_search`` can use: what each is asked, and how its answer is read. No I/O.

All results have the keys of V1's (tools-v1 §9.5), whatever the engine calls them.
"""

import json
from collections.abc import Callable, Mapping
from datetime import date
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from msgspec import Struct
from msgspec.structs import replace

from holdfast.adapters.web.clean_text import clean_text

CATEGORIES: Final = (
    *("company", "research paper", "news", "pdf", "github", "tweet", "personal site"),
    *("linkedin profile", "financial report"),
)
MAX_TEXT_CHARS: Final = 10_000
"""How much of one page's text is a part of a result."""

Json = Any


class SearchQuery(Struct, frozen=True, kw_only=True):
    """What to look for. The names are those of the tool's parameters."""

    query: str
    num_results: int
    today: date
    category: str | None = None
    include_text: bool = False
    include_domains: tuple[str, ...] = ()
    exclude_domains: tuple[str, ...] = ()
    start_published_date: date | None = None
    end_published_date: date | None = None
    user_location: str | None = None

    def clean(self) -> "SearchQuery":
        """The same in texts that can be sent."""
        return replace(
            self,
            query=clean_text(self.query),
            include_domains=tuple(map(clean_text, self.include_domains)),
            exclude_domains=tuple(map(clean_text, self.exclude_domains)),
        )

    def find_filters(self) -> list[str]:
        """The names of the filters that are set."""
        names = (
            *("category", "include_text", "include_domains", "exclude_domains"),
            *("start_published_date", "end_published_date", "user_location"),
        )
        return [name for name in names if getattr(self, name)]


class EngineRequest(Struct, frozen=True, kw_only=True):
    """``path``: what follows the engine's address. Without ``body`` the method is GET."""

    path: str
    headers: Mapping[str, str] = {}
    body: Mapping[str, Json] | None = None


class Engine(Struct, frozen=True, kw_only=True):
    name: str
    # None: the operator names it.
    address: str | None
    # The variable with its key, also as a secret of an agent; None: it has none.
    key_name: str | None
    # Returns the request for a query, given the key.
    build: Callable[[SearchQuery, str], EngineRequest]
    # Returns the results in an answer. LookupError, TypeError or ValueError if it is no answer.
    read: Callable[[Json, SearchQuery], list[dict[str, Json]]]
    # Returns the filters that the engine cannot apply.
    find_ignored: Callable[[SearchQuery], list[str]]
    # What to do about a status, by the status.
    hints: Mapping[int, str] = {}


def _make_result(page: Mapping[str, Json], published_at: Json, **more: Json) -> dict[str, Json]:
    """The keys that every result has, and those of ``more`` that are not empty."""
    fixed = {
        "title": _read_text(page.get("title")),
        "url": clean_text(page["url"]),
        "published_date": _read_text(published_at),
        "author": _read_text(page.get("author")),
    }
    return fixed | {name: value for name, value in more.items() if value}


def _read_text(value: Json) -> str | None:
    """None for what is no text."""
    return clean_text(value) if isinstance(value, str) else None


def _read_texts(values: Json) -> list[str]:
    given = values if isinstance(values, list) else []
    return [text for value in given if (text := _read_text(value))]


def _cut(value: Json) -> str:
    return (_read_text(value) or "")[:MAX_TEXT_CHARS]


def _with_sites(query: SearchQuery) -> str:
    """The query with the operators for domains that most engines know."""
    wanted = " OR ".join(f"site:{domain}" for domain in query.include_domains)
    several = len(query.include_domains) > 1
    unwanted = (f"-site:{domain}" for domain in query.exclude_domains)
    return " ".join((query.query, f"({wanted})" if several else wanted, *unwanted)).strip()


def _is_wanted(url: object, query: SearchQuery) -> bool:
    """Whether the domains of the query allow the result; engines take the operators only as a wish."""
    try:
        host = urlsplit(str(url)).hostname or ""
    except ValueError:
        return False
    include, exclude = query.include_domains, query.exclude_domains
    if any(_is_of(host, domain) for domain in exclude):
        return False
    return not include or any(_is_of(host, domain) for domain in include)


def _is_of(host: str, domain: str) -> bool:
    domain = domain.lower().removeprefix("www.")
    return host == domain or host.endswith(f".{domain}")


def _iso(day: date | None) -> str | None:
    return None if day is None else day.isoformat()


_SEARXNG_CATEGORIES: Final = {"news": "news", "research paper": "science", "github": "it"}


def _build_searxng(query: SearchQuery, _key: str) -> EngineRequest:
    fields = {"q": _with_sites(query), "format": "json"}
    if query.category in _SEARXNG_CATEGORIES:
        fields["categories"] = _SEARXNG_CATEGORIES[query.category]
    return EngineRequest(path=f"/search?{urlencode(fields)}")


def _read_searxng(answer: Json, query: SearchQuery) -> list[dict[str, Json]]:
    return [
        _make_result(
            page,
            page.get("publishedDate"),
            highlights=_read_texts([page.get("content")]),
        )
        for page in answer["results"]
        if _is_wanted(page["url"], query)
    ]


def _ignored_by_searxng(query: SearchQuery) -> list[str]:
    known = ("include_domains", "exclude_domains")
    is_known = query.category in _SEARXNG_CATEGORIES
    kept = (*known, "category") if is_known else known
    return [name for name in query.find_filters() if name not in kept]


_BRAVE_MAX_RESULTS: Final = 20
# It refuses others.
_BRAVE_COUNTRIES: Final = frozenset(
    (
        *("AR", "AU", "AT", "BE", "BR", "CA", "CL", "CN", "DK", "FI", "FR", "DE", "HK", "IN"),
        *("ID", "IT", "JP", "KR", "MX", "MY", "NL", "NO", "NZ", "PH", "PL", "PT", "RU", "SA"),
        *("ZA", "ES", "SE", "CH", "TW", "TR", "GB", "US", "GR"),
    )
)
# Older than the web.
_FIRST_DAY: Final = date(1990, 1, 1)


def _build_brave(query: SearchQuery, key: str) -> EngineRequest:
    fields = {"q": _with_sites(query), "count": min(query.num_results, _BRAVE_MAX_RESULTS)}
    if query.user_location in _BRAVE_COUNTRIES:
        fields["country"] = query.user_location
    if query.start_published_date or query.end_published_date:
        first = query.start_published_date or _FIRST_DAY
        last = query.end_published_date or query.today
        fields["freshness"] = f"{first.isoformat()}to{last.isoformat()}"
    return EngineRequest(
        path=f"/res/v1/web/search?{urlencode(fields)}",
        headers={"X-Subscription-Token": key, "Accept": "application/json"},
    )


def _read_brave(answer: Json, query: SearchQuery) -> list[dict[str, Json]]:
    # Without results there is no ``web``.
    pages = (answer.get("web") or {}).get("results") or []
    return [
        _make_result(page, page.get("page_age"), highlights=_brave_highlights(page))
        for page in pages
        if _is_wanted(page["url"], query)
    ]


def _brave_highlights(page: Mapping[str, Json]) -> list[str]:
    return _read_texts([page.get("description"), *(page.get("extra_snippets") or ())])


def _ignored_by_brave(query: SearchQuery) -> list[str]:
    missing = ["category", "include_text"]
    if query.user_location not in _BRAVE_COUNTRIES:
        missing.append("user_location")
    return [name for name in query.find_filters() if name in missing]


_TAVILY_MAX_RESULTS: Final = 20
_TAVILY_TOPICS: Final = {"news": "news", "financial report": "finance"}


def _build_tavily(query: SearchQuery, key: str) -> EngineRequest:
    fields: dict[str, Json] = {
        "query": query.query,
        "max_results": min(query.num_results, _TAVILY_MAX_RESULTS),
        "topic": _TAVILY_TOPICS.get(query.category or "", "general"),
        "include_raw_content": query.include_text,
        "include_domains": list(query.include_domains),
        "exclude_domains": list(query.exclude_domains),
        "start_date": _iso(query.start_published_date),
        "end_date": _iso(query.end_published_date),
    }
    return EngineRequest(
        path="/search",
        headers={"Authorization": f"Bearer {key}"},
        body={name: value for name, value in fields.items() if value not in (None, [])},
    )


def _read_tavily(answer: Json, _query: SearchQuery) -> list[dict[str, Json]]:
    return [
        _make_result(
            page,
            page.get("published_date"),
            text=_cut(page.get("raw_content")),
            highlights=_read_texts([page.get("content")]),
        )
        for page in answer["results"]
    ]


def _ignored_by_tavily(query: SearchQuery) -> list[str]:
    is_topic = query.category in _TAVILY_TOPICS
    missing = ("user_location",) if is_topic else ("user_location", "category")
    return [name for name in query.find_filters() if name in missing]


def _build_exa(query: SearchQuery, key: str) -> EngineRequest:
    fields: dict[str, Json] = {
        "query": query.query,
        "type": "auto",
        "numResults": query.num_results,
        "category": query.category,
        "includeDomains": list(query.include_domains),
        "excludeDomains": list(query.exclude_domains),
        "startPublishedDate": _iso(query.start_published_date),
        "endPublishedDate": _iso(query.end_published_date),
        "userLocation": query.user_location,
        "contents": {
            "text": {"maxCharacters": MAX_TEXT_CHARS} if query.include_text else False,
            "highlights": {"query": query.query},
            "summary": {"query": query.query},
        },
    }
    return EngineRequest(
        path="/search",
        headers={"x-api-key": key},
        body={name: value for name, value in fields.items() if value not in (None, [])},
    )


def _read_exa(answer: Json, query: SearchQuery) -> list[dict[str, Json]]:
    return [
        _make_result(
            page,
            page.get("publishedDate"),
            text=_cut(page.get("text")) if query.include_text else "",
            highlights=_read_texts(page.get("highlights")),
            summary=_read_text(page.get("summary")),
        )
        for page in answer["results"]
    ]


def build_exa_contents(url: str, key: str) -> EngineRequest:
    """The request for the text of one page."""
    return EngineRequest(
        path="/contents", headers={"x-api-key": key}, body={"urls": [url], "text": True}
    )


def read_exa_contents(answer: Json) -> str:
    """The page, as V1 returned it. LookupError if Exa does not have it, or not its text."""
    page = answer["results"][0]
    text = _read_text(page["text"])
    if not (text or "").strip():
        raise LookupError("text")
    found = {
        "title": _read_text(page.get("title")),
        "published_date": _read_text(page.get("publishedDate")),
        "author": _read_text(page.get("author")),
        "text": text,
    }
    return json.dumps(found, ensure_ascii=False, indent=2)


SEARXNG: Final = Engine(
    name="searxng",
    address=None,
    key_name=None,
    build=_build_searxng,
    read=_read_searxng,
    find_ignored=_ignored_by_searxng,
    hints={403: "its settings must name `json` under search.formats"},
)
BRAVE: Final = Engine(
    name="brave",
    address="https://api.search.brave.com",
    key_name="BRAVE_API_KEY",
    build=_build_brave,
    read=_read_brave,
    find_ignored=_ignored_by_brave,
)
TAVILY: Final = Engine(
    name="tavily",
    address="https://api.tavily.com",
    key_name="TAVILY_API_KEY",
    build=_build_tavily,
    read=_read_tavily,
    find_ignored=_ignored_by_tavily,
)
EXA: Final = Engine(
    name="exa",
    address="https://api.exa.ai",
    key_name="EXA_API_KEY",
    build=_build_exa,
    read=_read_exa,
    find_ignored=lambda _query: [],
)

ENGINES: Final[Mapping[str, Engine]] = {
    engine.name: engine for engine in (SEARXNG, BRAVE, TAVILY, EXA)
}
"""By name, in the order in which a server that has several of them uses them."""
