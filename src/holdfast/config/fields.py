"""The settings of the server itself, one field each. A field's annotation says how it is set and described.

The settings of model providers are declared in their rows (``adapters/models/providers``).
"""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final

from holdfast.adapters.models.providers.table import EXAMPLE_HANDLE
from holdfast.config.parsing import (
    HTTP_URL_TEXT,
    integer_between,
    one_of,
    parse_callback_secret,
    parse_hosts,
    parse_http_url,
    parse_http_urls,
    parse_path,
    parse_positive_seconds,
    parse_role,
    parse_seconds,
    parse_switch,
    seconds_between,
    text_matching,
)
from holdfast.config.spec import SettingSpec
from holdfast.core.addresses import AllowedAddresses
from holdfast.core.models import GUIDE_HANDLE
from holdfast.core.servers import Role
from holdfast.logs import FORMATS, TEXT
from holdfast.ports.services import Limits

DURABILITIES: Final = ("normal", "full")
METRICS: Final = ("off", "on", "open")
LOG_LEVELS: Final = ("critical", "error", "warning", "info", "debug")

_LIMITS = Limits()
_NO_PRIVATE_HOSTS = AllowedAddresses()
_POSTGRES_URL = re.compile(r"postgres(?:ql)?(?:\+psycopg)?://.+")
_DATABASE_URL = re.compile(rf"sqlite:///(?!:memory:).+|{_POSTGRES_URL.pattern}")
_REDIS_URL = re.compile(r"(?:rediss?|unix)://\S+")
HANDLE = re.compile(r"[^/\s]+/\S+")


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingFields:
    home: Annotated[
        Path,
        SettingSpec(
            description="The folder for all files of the server.",
            variables=("HOLDFAST_HOME",),
            parse=parse_path,
            accepts="a path",
            default="~/.holdfast",
        ),
    ]
    database_url: Annotated[
        str,
        SettingSpec(
            description="The database: `sqlite:///<path>` or `postgresql://<user>:<password>@<host>/<name>`.",
            variables=("HOLDFAST_DATABASE_URL",),
            parse=text_matching(_DATABASE_URL),
            accepts="sqlite:///<path> or postgresql://…",
            default="the SQLite file `holdfast.db` in the home folder",
        ),
    ] = field(repr=False)
    listen_url: Annotated[
        str | None,
        SettingSpec(
            description="The address at which the server listens for notifications of PostgreSQL. Needed if `HOLDFAST_DATABASE_URL` is that of a transaction pooler, which does not pass them on: the same database, without the pooler.",
            variables=("HOLDFAST_LISTEN_URL",),
            parse=text_matching(_POSTGRES_URL),
            accepts="postgresql://…",
            default="`HOLDFAST_DATABASE_URL`",
        ),
    ] = field(default=None, repr=False)
    durability: Annotated[
        str,
        SettingSpec(
            description="What a power cut may cost with SQLite: `normal` can lose the last moments, `full` loses nothing, but waits for the disk at each commit.",
            variables=("HOLDFAST_DURABILITY",),
            parse=one_of(DURABILITIES),
            accepts="normal or full",
        ),
    ] = "normal"
    redis_url: Annotated[
        str | None,
        SettingSpec(
            description="A Redis (6.2 or newer) that receives the events of live runs, for readers in other processes: `redis://<host>:<port>`; needs `pip install 'holdfast[redis]'`.",
            variables=("HOLDFAST_REDIS_URL",),
            parse=text_matching(_REDIS_URL),
            accepts="redis://…, rediss://… or unix://<path>",
        ),
    ] = field(default=None, repr=False)
    host: Annotated[
        str,
        SettingSpec(
            description="The address to listen on. Other than loopback needs a password.",
            variables=("HOLDFAST_HOST",),
            accepts="an address or a name of this machine",
        ),
    ] = "127.0.0.1"
    port: Annotated[
        int,
        SettingSpec(
            description="The port to listen on; 0 takes a free one.",
            variables=("HOLDFAST_PORT",),
            parse=integer_between(0, 65535),
            accepts="a number from 0 to 65535",
        ),
    ] = 8283
    password: Annotated[
        str | None,
        SettingSpec(
            description="Every request but health must send it as its bearer token (the SDK's `api_key`).",
            variables=("HOLDFAST_PASSWORD", "LETTA_SERVER_PASSWORD"),
            secret=True,
        ),
    ] = field(default=None, repr=False)
    insecure: Annotated[
        bool,
        SettingSpec(
            description="Listen on any address without a password: something else guards the port.",
            variables=("HOLDFAST_INSECURE",),
            parse=parse_switch,
            accepts="true or false",
        ),
    ] = False
    role: Annotated[
        Role,
        SettingSpec(
            description="What this server does: `api` answers requests, `worker` executes runs and answers only health and metrics, `all` does both. With SQLite only `all`.",
            variables=("HOLDFAST_ROLE",),
            parse=parse_role,
            accepts=f"one of {', '.join(Role)}",
        ),
    ] = Role.ALL
    processes: Annotated[
        int,
        SettingSpec(
            description="How many processes serve on the port. Each is a server of its own and uses one core; one that dies is started again. With SQLite only 1.",
            variables=("HOLDFAST_PROCESSES",),
            parse=integer_between(1, 64),
            accepts="a number from 1 to 64",
        ),
    ] = 1
    default_model: Annotated[
        str | None,
        SettingSpec(
            description="The model of agents that are created without one.",
            variables=("HOLDFAST_DEFAULT_MODEL",),
            parse=text_matching(HANDLE),
            accepts=f"a handle such as {EXAMPLE_HANDLE}",
            default=f"`{GUIDE_HANDLE}` if no provider has a key, else none",
        ),
    ] = None
    busy_wait_seconds: Annotated[
        float,
        SettingSpec(
            description="How long a message waits for its turn in a busy conversation before it is refused (409).",
            variables=("HOLDFAST_BUSY_WAIT_SECONDS",),
            parse=parse_seconds,
            accepts="a number of seconds, 0 or more",
        ),
    ] = _LIMITS.busy_wait_seconds
    max_recoveries: Annotated[
        int,
        SettingSpec(
            description="How often in a row a run that a dead server did not finish is resumed, without progress in between, before it is ended as failed.",
            variables=("HOLDFAST_MAX_RECOVERIES",),
            parse=integer_between(0, 1000),
            accepts="a number from 0 to 1000",
        ),
    ] = _LIMITS.max_recoveries
    max_runs: Annotated[
        int,
        SettingSpec(
            description="How many runs one process executes at a time; more wait in the queue.",
            variables=("HOLDFAST_MAX_RUNS",),
            parse=integer_between(1, 100_000),
            accepts="a number from 1 to 100000",
        ),
    ] = _LIMITS.max_runs
    lease_seconds: Annotated[
        float,
        SettingSpec(
            description="How long after the last heartbeat of a server the others take over its runs. PostgreSQL only.",
            variables=("HOLDFAST_LEASE_SECONDS",),
            parse=seconds_between(2, 3600),
            accepts="a number of seconds from 2 to 3600",
        ),
    ] = 10.0
    run_stall_seconds: Annotated[
        float,
        SettingSpec(
            description="How long a run may make no progress before it is ended as failed: nothing new from the model, or no result of a tool beyond the tool's own time. Waiting for a person or for its turn does not count.",
            variables=("HOLDFAST_RUN_STALL_SECONDS",),
            parse=parse_positive_seconds,
            accepts="a number of seconds, more than 0",
        ),
    ] = _LIMITS.run_stall_seconds
    model_attempts: Annotated[
        int,
        SettingSpec(
            description="How often a model is asked for one answer while its provider has a temporary failure (overloaded, rate limit, server error, connection); 1 asks once.",
            variables=("HOLDFAST_MODEL_ATTEMPTS",),
            parse=integer_between(1, 100),
            accepts="a number from 1 to 100",
        ),
    ] = _LIMITS.model_attempts
    model_retry_seconds: Annotated[
        float,
        SettingSpec(
            description="How long after the first attempt the model may be asked again. If the provider asks for a longer wait, the call fails.",
            variables=("HOLDFAST_MODEL_RETRY_SECONDS",),
            parse=parse_seconds,
            accepts="a number of seconds, 0 or more",
        ),
    ] = _LIMITS.model_retry_seconds
    model_silence_seconds: Annotated[
        float,
        SettingSpec(
            description="How long a model provider's connection may be silent before the call counts as timed out. Reasoning models are silent for minutes.",
            variables=("HOLDFAST_MODEL_SILENCE_SECONDS",),
            parse=parse_positive_seconds,
            accepts="a number of seconds, more than 0",
        ),
    ] = 600.0
    callback_secret: Annotated[
        str | None,
        SettingSpec(
            description="The secret that signs every callback, so that its receiver can check who sent it; text, or `whsec_` and base64.",
            variables=("HOLDFAST_CALLBACK_SECRET",),
            parse=parse_callback_secret,
            accepts="text, or whsec_ and base64",
            secret=True,
        ),
    ] = field(default=None, repr=False)
    callback_attempts: Annotated[
        int,
        SettingSpec(
            description="How often a callback is sent before it counts as failed.",
            variables=("HOLDFAST_CALLBACK_ATTEMPTS",),
            parse=integer_between(1, 100),
            accepts="a number from 1 to 100",
        ),
    ] = _LIMITS.callback_attempts
    drain_seconds: Annotated[
        float,
        SettingSpec(
            description="How long a server that is stopping lets its runs continue; the next start resumes those that are not finished by then.",
            variables=("HOLDFAST_DRAIN_SECONDS",),
            parse=parse_seconds,
            accepts="a number of seconds, 0 or more",
        ),
    ] = 10.0
    max_body_bytes: Annotated[
        int,
        SettingSpec(
            description="The largest request body; a larger one is refused (413).",
            variables=("HOLDFAST_MAX_BODY_BYTES",),
            parse=integer_between(1, 2**40),
            accepts="a number of bytes, 1 or more",
        ),
    ] = 32 * 1024 * 1024
    max_file_mb: Annotated[
        int,
        SettingSpec(
            description="The largest file that can be uploaded, in MiB; a larger one is refused (413).",
            variables=("HOLDFAST_MAX_FILE_MB",),
            parse=integer_between(1, 10_000),
            accepts="a number from 1 to 10000",
        ),
    ] = _LIMITS.max_file_mb
    write_seconds: Annotated[
        float,
        SettingSpec(
            description="How long one transaction may write to the database, because others wait for it; a longer one is undone (503).",
            variables=("HOLDFAST_WRITE_SECONDS",),
            parse=parse_positive_seconds,
            accepts="a number of seconds, more than 0",
        ),
    ] = 10.0
    allowed_private_hosts: Annotated[
        AllowedAddresses,
        SettingSpec(
            description="Hosts besides public addresses that callers may name in URLs (callbacks and images): names, addresses and networks, separated by commas.",
            variables=("HOLDFAST_ALLOWED_PRIVATE_HOSTS",),
            parse=parse_hosts,
            accepts="names, addresses and networks such as hooks.internal,10.1.0.0/16",
            default="none",
        ),
    ] = _NO_PRIVATE_HOSTS
    provider_traces: Annotated[
        bool,
        SettingSpec(
            description="Store what each step sent to its provider and received, without keys and agents' secrets: `GET /v1/steps/{id}/trace`.",
            variables=("HOLDFAST_PROVIDER_TRACES",),
            parse=parse_switch,
            accepts="true or false",
        ),
    ] = False
    max_trace_bytes: Annotated[
        int,
        SettingSpec(
            description="The length of a request or answer in a trace; of a longer one only the beginning is stored.",
            variables=("HOLDFAST_MAX_TRACE_BYTES",),
            parse=integer_between(1, 2**30),
            accepts="a number of bytes, 1 or more",
        ),
    ] = 256 * 1024
    log_level: Annotated[
        str,
        SettingSpec(
            description=f"How much is logged: {', '.join(LOG_LEVELS)}.",
            variables=("HOLDFAST_LOG_LEVEL",),
            parse=one_of(LOG_LEVELS),
            accepts=f"one of {', '.join(LOG_LEVELS)}",
        ),
    ] = "info"
    log_format: Annotated[
        str,
        SettingSpec(
            description="The format of log lines: text for people, json for machines.",
            variables=("HOLDFAST_LOG_FORMAT",),
            parse=one_of(FORMATS),
            accepts=f"one of {', '.join(FORMATS)}",
        ),
    ] = TEXT
    otlp_endpoint: Annotated[
        str | None,
        SettingSpec(
            description="An OpenTelemetry collector that receives traces and metrics over OTLP/HTTP; needs `pip install 'holdfast[otel]'`.",
            variables=("HOLDFAST_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"),
            parse=parse_http_url,
            accepts=HTTP_URL_TEXT,
        ),
    ] = field(default=None, repr=False)
    metrics: Annotated[
        str,
        SettingSpec(
            description="Metrics for Prometheus at `/metrics`: off, on (like the API, with its password) or open (without the password); needs `pip install 'holdfast[otel]'`.",
            variables=("HOLDFAST_METRICS",),
            parse=one_of(METRICS),
            accepts=f"one of {', '.join(METRICS)}",
        ),
    ] = "off"
    telemetry_content: Annotated[
        bool,
        SettingSpec(
            description="Put the texts of users, models and tools into the traces.",
            variables=("HOLDFAST_TELEMETRY_CONTENT",),
            parse=parse_switch,
            accepts="true or false",
        ),
    ] = False
    secret_key: Annotated[
        str | None,
        SettingSpec(
            description="The key that encrypts agents' secrets in the database.",
            variables=("HOLDFAST_SECRET_KEY",),
            default="made at the first start, in `secret.key` in the home folder",
            secret=True,
        ),
    ] = field(default=None, repr=False)
    allowed_model_endpoints: Annotated[
        tuple[str, ...],
        SettingSpec(
            description="Addresses that a request's `llm_config.model_endpoint` may name besides its provider's own, separated by commas. They receive the provider's key.",
            variables=("HOLDFAST_ALLOWED_MODEL_ENDPOINTS",),
            parse=parse_http_urls,
            accepts="addresses that begin with http:// or https://, separated by commas",
            default="none",
        ),
    ] = ()
