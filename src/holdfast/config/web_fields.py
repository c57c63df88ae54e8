"""The settings of the tools for the web: which search engine they use."""

import re
from dataclasses import dataclass, field
from typing import Annotated, Final

from holdfast.config.mcp_fields import McpFields
from holdfast.config.parsing import one_of, text_matching
from holdfast.config.spec import SettingSpec

SEARCH_ENGINES: Final = ("searxng", "brave", "tavily", "exa")

_ADDRESS: Final = re.compile(r"https?://[^\s@?#]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class WebFields(McpFields):
    search_engine: Annotated[
        str | None,
        SettingSpec(
            description="The search engine of the tool `web_search`. An agent's secrets `EXA_API_KEY`, `BRAVE_API_KEY` and `TAVILY_API_KEY` win over the server's.",
            variables=("HOLDFAST_SEARCH_ENGINE",),
            parse=one_of(SEARCH_ENGINES),
            accepts=f"one of {', '.join(SEARCH_ENGINES)}",
            default=f"the first that is configured of {', '.join(SEARCH_ENGINES)}",
        ),
    ] = None
    searxng_url: Annotated[
        str | None,
        SettingSpec(
            description="The address of a SearXNG, which searches the web for `web_search`. Its settings must allow the format `json`.",
            variables=("HOLDFAST_SEARXNG_URL",),
            parse=text_matching(_ADDRESS),
            accepts="an address that begins with http:// or https://, without a name or password",
        ),
    ] = None
    brave_api_key: Annotated[
        str | None,
        SettingSpec(
            description="The key of Brave's search API, for `web_search`.",
            variables=("HOLDFAST_BRAVE_API_KEY", "BRAVE_API_KEY"),
            secret=True,
        ),
    ] = field(default=None, repr=False)
    tavily_api_key: Annotated[
        str | None,
        SettingSpec(
            description="The key of Tavily's API, for `web_search`.",
            variables=("HOLDFAST_TAVILY_API_KEY", "TAVILY_API_KEY"),
            secret=True,
        ),
    ] = field(default=None, repr=False)
    exa_api_key: Annotated[
        str | None,
        SettingSpec(
            description="The key of Exa's API, for `web_search`; `fetch_webpage` then asks Exa first for pages at public addresses.",
            variables=("HOLDFAST_EXA_API_KEY", "EXA_API_KEY"),
            secret=True,
        ),
    ] = field(default=None, repr=False)
