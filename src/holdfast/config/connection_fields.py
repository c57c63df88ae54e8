"""The settings of connections: what strangers may send before the server knows who they are."""

from dataclasses import dataclass
from typing import Annotated

from holdfast.config.parsing import integer_between, parse_networks, parse_positive_seconds
from holdfast.config.spec import SettingSpec
from holdfast.config.web_fields import WebFields
from holdfast.core.addresses import IPNetwork
from holdfast.http.pending_requests import ConnectionLimits

_LIMITS = ConnectionLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionFields(WebFields):
    trusted_proxies: Annotated[
        tuple[IPNetwork, ...],
        SettingSpec(
            description="Proxies whose `X-Forwarded-For`, `X-Forwarded-Proto` and `X-Forwarded-Prefix` are believed: addresses and networks, separated by commas.",
            variables=("HOLDFAST_TRUSTED_PROXIES",),
            parse=parse_networks,
            accepts="addresses and networks such as 10.0.0.2,10.1.0.0/16",
            default="none",
        ),
    ] = ()
    max_connections: Annotated[
        int,
        SettingSpec(
            description="How many connections may be open at once. If the limit on open files allows fewer, there are fewer; `ulimit -Hn` shows it.",
            variables=("HOLDFAST_MAX_CONNECTIONS",),
            parse=integer_between(1, 2**20),
            accepts="a number from 1 to 1048576",
        ),
    ] = _LIMITS.connections
    max_pending_connections: Annotated[
        int,
        SettingSpec(
            description="How many connections may be without a complete request header for more than a second; the oldest ones beyond it are closed.",
            variables=("HOLDFAST_MAX_PENDING_CONNECTIONS",),
            parse=integer_between(1, 2**20),
            accepts="a number from 1 to 1048576",
        ),
    ] = _LIMITS.pending
    max_pending_per_address: Annotated[
        int,
        SettingSpec(
            description="The same for the connections of one address (of IPv6, of one /64 network). It does not hold for trusted proxies.",
            variables=("HOLDFAST_MAX_PENDING_PER_ADDRESS",),
            parse=integer_between(1, 2**20),
            accepts="a number from 1 to 1048576",
        ),
    ] = _LIMITS.pending_per_address
    max_header_bytes: Annotated[
        int,
        SettingSpec(
            description="The largest header of a request, with the request line; a larger one is refused (431).",
            variables=("HOLDFAST_MAX_HEADER_BYTES",),
            parse=integer_between(256, 2**24),
            accepts="a number of bytes from 256 to 16777216",
        ),
    ] = _LIMITS.header_bytes
    max_headers: Annotated[
        int,
        SettingSpec(
            description="How many fields the header of a request may have; more are refused (431).",
            variables=("HOLDFAST_MAX_HEADERS",),
            parse=integer_between(1, 10_000),
            accepts="a number from 1 to 10000",
        ),
    ] = _LIMITS.header_count
    header_seconds: Annotated[
        float,
        SettingSpec(
            description="How long the header of a request may take to arrive, from the start of the connection or the first byte of the next request.",
            variables=("HOLDFAST_HEADER_SECONDS",),
            parse=parse_positive_seconds,
            accepts="a number of seconds, more than 0",
        ),
    ] = _LIMITS.header_seconds
    body_seconds: Annotated[
        float,
        SettingSpec(
            description="How long the body of a request may take to arrive.",
            variables=("HOLDFAST_BODY_SECONDS",),
            parse=parse_positive_seconds,
            accepts="a number of seconds, more than 0",
        ),
    ] = _LIMITS.body_seconds
