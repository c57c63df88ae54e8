"""The cache of pages: what it forgets, and when."""

import pytest

from holdfast.adapters.web.page_cache import MAX_AGE_SECONDS, PageCache, find_age


def test_a_page_is_found_until_its_age_is_reached() -> None:
    cache = PageCache()
    cache.put("org-1", "http://a.example/", "text", now_seconds=100, age_seconds=10)

    assert cache.find("org-1", "http://a.example/", 109.9) == "text"
    assert cache.find("org-1", "http://a.example/", 110) is None
    assert cache.find("org-1", "http://a.example/", 105) is None


def test_organizations_share_nothing() -> None:
    cache = PageCache()
    cache.put("org-1", "http://a.example/", "text", now_seconds=0, age_seconds=10)

    assert cache.find("org-2", "http://a.example/", 0) is None


def test_the_pages_that_were_used_least_lately_make_room() -> None:
    cache = PageCache(max_bytes=4 * 10)
    for name in ("a", "b", "c"):
        cache.put("org", name, "1234", now_seconds=0, age_seconds=10)
        cache.find("org", "a", 1)

    assert [cache.find("org", name, 1) for name in ("a", "b", "c")] == ["1234", None, "1234"]


def test_a_page_that_is_larger_than_the_cache_is_not_kept() -> None:
    cache = PageCache(max_bytes=4 * 10)
    cache.put("org", "a", "1234", now_seconds=0, age_seconds=10)
    cache.put("org", "large", "x" * 11, now_seconds=0, age_seconds=10)

    assert cache.find("org", "large", 1) is None
    assert cache.find("org", "a", 1) == "1234"


def test_a_page_that_is_put_again_counts_once() -> None:
    cache = PageCache(max_bytes=4 * 10)
    for text in ("123456", "abcdef", "ABCDEF"):
        cache.put("org", "a", text, now_seconds=0, age_seconds=10)

    assert cache.find("org", "a", 1) == "ABCDEF"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, MAX_AGE_SECONDS),
        ({"cache-control": "public, max-age=60"}, 60),
        ({"cache-control": "max-age=99999999999999999999"}, MAX_AGE_SECONDS),
        ({"cache-control": "max-age=soon"}, MAX_AGE_SECONDS),
        ({"cache-control": "max-age=²"}, MAX_AGE_SECONDS),
        ({"cache-control": "max-age=-1"}, MAX_AGE_SECONDS),
        ({"cache-control": "max-age=0"}, 0),
        ({"cache-control": "No-Store"}, 0),
        ({"cache-control": "private, max-age=60"}, 0),
        ({"cache-control": 'no-cache="set-cookie"'}, 0),
        ({"set-cookie": "a=b"}, 0),
        ({"vary": "*"}, 0),
    ],
)
def test_a_site_says_how_long_its_page_may_be_kept(headers: dict[str, str], seconds: float) -> None:
    assert find_age(headers) == seconds
