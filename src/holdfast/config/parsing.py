"""Parsers for the texts of settings. Each raises ValueError for a text that cannot be used."""

import math
import re
from collections.abc import Callable
from ipaddress import ip_network
from pathlib import Path
from typing import Final

from holdfast.core.addresses import AllowedAddresses, IPNetwork, parse_allowed
from holdfast.core.callbacks import is_usable_secret
from holdfast.core.servers import Role

_HTTP_URL = re.compile(r"https?://\S+")
HTTP_URL_TEXT: Final = "an address that begins with http:// or https://"
_SWITCH_WORDS: Final = {
    "1": True,
    "true": True,
    "yes": True,
    "0": False,
    "false": False,
    "no": False,
}


def integer_between(least: int, most: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        number = int(text)
        if not least <= number <= most:
            raise ValueError(text)
        return number

    return parse


def text_matching(pattern: re.Pattern[str]) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if pattern.fullmatch(text) is None:
            raise ValueError(text)
        return text

    return parse


def one_of(words: tuple[str, ...]) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text.lower() not in words:
            raise ValueError(text)
        return text.lower()

    return parse


parse_http_url = text_matching(_HTTP_URL)


def parse_http_urls(text: str) -> tuple[str, ...]:
    return tuple(parse_http_url(item.strip()) for item in text.split(",") if item.strip())


def parse_seconds(text: str) -> float:
    number = float(text)
    if not math.isfinite(number) or number < 0:
        raise ValueError(text)
    return number


def parse_positive_seconds(text: str) -> float:
    number = parse_seconds(text)
    if number == 0:
        raise ValueError(text)
    return number


def seconds_between(least: float, most: float) -> Callable[[str], float]:
    def parse(text: str) -> float:
        number = parse_seconds(text)
        if not least <= number <= most:
            raise ValueError(text)
        return number

    return parse


def parse_role(text: str) -> Role:
    return Role(text.lower())


def parse_switch(text: str) -> bool:
    if text.lower() not in _SWITCH_WORDS:
        raise ValueError(text)
    return _SWITCH_WORDS[text.lower()]


def parse_callback_secret(text: str) -> str:
    if not is_usable_secret(text):
        raise ValueError(text)
    return text


def parse_hosts(text: str) -> AllowedAddresses:
    return parse_allowed(entry.strip() for entry in text.split(",") if entry.strip())


def parse_networks(text: str) -> tuple[IPNetwork, ...]:
    return tuple(ip_network(entry.strip()) for entry in text.split(",") if entry.strip())


def parse_path(text: str) -> Path:
    return Path(text).expanduser().absolute()


def parse_absolute_paths(text: str) -> tuple[Path, ...]:
    paths = tuple(Path(entry.strip()) for entry in text.split(",") if entry.strip())
    if not all(path.is_absolute() for path in paths):
        raise ValueError(text)
    return paths
