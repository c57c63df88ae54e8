"""Pages of the web for an agent: from the cache, from Exa if there is a key for it and the page is public, else from
their site."""

import asyncio
from collections.abc import Mapping
from typing import Final

from holdfast.adapters.web.page_cache import MAX_AGE_SECONDS, PageCache
from holdfast.adapters.web.page_text import read_page
from holdfast.adapters.web.page_url import check_scheme, quote_url
from holdfast.adapters.web.search import WebSearch
from holdfast.adapters.web.site import SitePage, fetch
from holdfast.errors import CallerError, ToolError, Undeliverable
from holdfast.ports.sandbox import Sandbox
from holdfast.ports.services import Services

MAX_SECONDS: Final = 30.0
"""How long a page may take to arrive. Reading it has limits of its own."""


class WebPages:
    def __init__(self, search: WebSearch, *, max_seconds: float = MAX_SECONDS) -> None:
        self._search = search
        self._max_seconds = max_seconds
        self._cache = PageCache()

    async def read(
        self,
        services: Services,
        sandbox: Sandbox,
        organization_id: str,
        url: str,
        secrets: Mapping[str, str],
    ) -> str:
        """The page as text; ToolError, with a sentence for the model, if there is none."""
        check_scheme(url.strip())
        url = quote_url(url)
        try:
            # Before anybody is asked, also Exa.
            services.outgoing.check(url)
            now = services.clock.monotonic_ns() / 1e9
            # A page has two forms.
            name = f"exa {url}" if self._search.has_pages(secrets) else url
            if (text := self._cache.find(organization_id, name, now)) is not None:
                return text
            page = await self._download(services, url, secrets)
        except (CallerError, Undeliverable) as error:
            raise ToolError(f"Error fetching webpage: {error}") from None
        if isinstance(page, str):
            text, age_seconds = page, MAX_AGE_SECONDS
        else:
            text = await read_page(page, services.documents, sandbox)
            age_seconds = page.age_seconds
        self._cache.put(organization_id, name, text, now, age_seconds)
        return text

    async def _download(
        self, services: Services, url: str, secrets: Mapping[str, str]
    ) -> SitePage | str:
        """The page of the site, or the text that Exa has of it."""
        try:
            async with asyncio.timeout(self._max_seconds):
                # Exa hears only of what it could find by itself.
                if self._search.has_pages(secrets) and await services.outgoing.is_public(url):
                    text = await self._search.find_page(url, secrets)
                    if text is not None:
                        return text
                return await fetch(services.outgoing, url, self._max_seconds)
        except TimeoutError:
            raise ToolError(
                f"Error fetching webpage: it takes longer than {self._max_seconds:g} s to arrive."
            ) from None
