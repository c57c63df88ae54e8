"""Every setting, read once at the start: from the command line first, from the environment second.

Name, variables, default and description of a setting stand here alone; ``--help`` and
docs/configuration.md are made from them. What a setting brings about is ``assembly``'s affair.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import Field, dataclass, field, fields
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Final, Self, get_type_hints
from urllib.parse import unquote, urlsplit

from holdfast.core.addresses import AllowedAddresses, parse_allowed
from holdfast.core.callbacks import is_usable_secret
from holdfast.errors import SettingInvalid
from holdfast.logs import FORMATS, TEXT
from holdfast.ports.sandbox import SandboxLimits
from holdfast.ports.services import Limits

# Where commands find a server that is running; the server itself does not read it.
URL_VARIABLE: Final = "HOLDFAST_URL"
GUIDE_HANDLE: Final = "holdfast/guide"
SANDBOX_LEVELS: Final = ("plain", "isolated")
METRICS: Final = ("off", "on", "open")
LOG_LEVELS: Final = ("critical", "error", "warning", "info", "debug")

_LIMITS = Limits()
_NO_PRIVATE_HOSTS = AllowedAddresses()
_TOOL_LIMITS = SandboxLimits()
_DATABASE_URL = re.compile(r"sqlite:///(?!:memory:).+|postgres(?:ql)?(?:\+psycopg)?://.+")
_REDIS_URL = re.compile(r"(?:rediss?|unix)://\S+")
_SQLITE: Final = "sqlite:///"
_HTTP_URL = re.compile(r"https?://\S+")
_AN_ADDRESS = "an address that begins with http:// or https://"
_HANDLE = re.compile(r"[^/\s]+/\S+")
# Up to the last @: a password that is not quoted as it should be may have one of its own.
_CREDENTIALS = re.compile(r"://[^:/@]*:.*@")


def _integer_between(least: int, most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        number = int(text)
        if not least <= number <= most:
            raise ValueError(text)
        return number

    return read


def _text_matching(pattern: re.Pattern[str]) -> Callable[[str], str]:
    def read(text: str) -> str:
        if pattern.fullmatch(text) is None:
            raise ValueError(text)
        return text

    return read


def _parse_seconds(text: str) -> float:
    number = float(text)
    if not math.isfinite(number) or number < 0:
        raise ValueError(text)
    return number


def _parse_positive_seconds(text: str) -> float:
    number = _parse_seconds(text)
    if number == 0:
        raise ValueError(text)
    return number


def _parse_switch(text: str) -> bool:
    words = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
    if text.lower() not in words:
        raise ValueError(text)
    return words[text.lower()]


def _one_of(words: tuple[str, ...]) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text.lower() not in words:
            raise ValueError(text)
        return text.lower()

    return read


def _parse_callback_secret(text: str) -> str:
    if not is_usable_secret(text):
        raise ValueError(text)
    return text


def _parse_hosts(text: str) -> AllowedAddresses:
    return parse_allowed(entry.strip() for entry in text.split(",") if entry.strip())


def _parse_path(text: str) -> Path:
    return Path(text).expanduser().absolute()


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingSpec:
    """What an operator is told of a setting, and how its text is read."""

    description: str
    # The first is the one that we show; the others are for those who come from elsewhere.
    variables: tuple[str, ...]
    # Raises ValueError for a text that cannot be used; ``accepts`` says what can.
    parse: Callable[[str], Any] = str
    accepts: str = "any text"
    # In words, where the default is worked out from other settings.
    default: str | None = None
    # Never an option: every user of a machine can read the command lines of all others.
    secret: bool = False


def _parse_addresses(text: str) -> tuple[str, ...]:
    return tuple(
        _text_matching(_HTTP_URL)(item.strip()) for item in text.split(",") if item.strip()
    )


def _key(
    provider: str, *variables: str, extra: str | None = None, if_asked: bool = False
) -> SettingSpec:
    needs = f", which need `pip install 'holdfast[{extra}]'`" if extra else ""
    asked = ", if its server asks for one" if if_asked else ""
    says = f"The key for `{provider}/…` models{needs}{asked}."
    return SettingSpec(description=says, variables=variables, secret=True)


def _address(api: str, *variables: str, default: str) -> SettingSpec:
    return SettingSpec(
        description=f"Another server that speaks {api}.",
        variables=variables,
        parse=_text_matching(_HTTP_URL),
        accepts=_AN_ADDRESS,
        default=default,
    )


def _server(provider: str, *variables: str) -> SettingSpec:
    return SettingSpec(
        description=f"Your own server for `{provider}/…` models.",
        variables=variables,
        parse=_text_matching(_HTTP_URL),
        accepts=_AN_ADDRESS,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the operator chose. Secrets never show in its ``repr``."""

    home: Annotated[
        Path,
        SettingSpec(
            description="The folder for everything that Holdfast keeps.",
            variables=("HOLDFAST_HOME",),
            parse=_parse_path,
            accepts="a path",
            default="~/.holdfast",
        ),
    ]
    database_url: Annotated[
        str,
        SettingSpec(
            description="The database: `sqlite:///<path>` or `postgresql://<user>:<password>@<host>/<name>`.",
            variables=("HOLDFAST_DATABASE_URL",),
            parse=_text_matching(_DATABASE_URL),
            accepts="sqlite:///<path> or postgresql://…",
            default="the SQLite file `holdfast.db` in the home folder",
        ),
    ] = field(repr=False)
    redis_url: Annotated[
        str | None,
        SettingSpec(
            description="A Redis (6.2 or newer) that gets the events of live runs for readers in other processes: `redis://<host>:<port>`; needs `pip install 'holdfast[redis]'`.",
            variables=("HOLDFAST_REDIS_URL",),
            parse=_text_matching(_REDIS_URL),
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
            parse=_integer_between(0, 65535),
            accepts="a number from 0 to 65535",
        ),
    ] = 8283
    password: Annotated[
        str | None,
        SettingSpec(
            description="With it, every request but health must bring it as its bearer token (the SDK's `api_key`).",
            variables=("HOLDFAST_PASSWORD", "LETTA_SERVER_PASSWORD"),
            secret=True,
        ),
    ] = field(default=None, repr=False)
    insecure: Annotated[
        bool,
        SettingSpec(
            description="Listen on any address without a password: something else guards the port.",
            variables=("HOLDFAST_INSECURE",),
            parse=_parse_switch,
            accepts="true or false",
        ),
    ] = False
    default_model: Annotated[
        str | None,
        SettingSpec(
            description="The model of agents that are created without one.",
            variables=("HOLDFAST_DEFAULT_MODEL",),
            parse=_text_matching(_HANDLE),
            accepts="a handle such as openai/gpt-4o-mini",
            default=f"`{GUIDE_HANDLE}` if no provider has a key, else none",
        ),
    ] = None
    busy_wait_seconds: Annotated[
        float,
        SettingSpec(
            description="How long a message waits for its turn in a busy conversation before it is refused (409).",
            variables=("HOLDFAST_BUSY_WAIT_SECONDS",),
            parse=_parse_seconds,
            accepts="a number of seconds, 0 or more",
        ),
    ] = _LIMITS.busy_wait_seconds
    tool_timeout_seconds: Annotated[
        float,
        SettingSpec(
            description="How long one tool call may take.",
            variables=("HOLDFAST_TOOL_TIMEOUT_SECONDS",),
            parse=_parse_seconds,
            accepts="a number of seconds, 0 or more",
        ),
    ] = _LIMITS.tool_timeout_seconds
    sandbox: Annotated[
        str,
        SettingSpec(
            description="How far tools are kept apart from this machine: `plain`, or `isolated`, which needs Linux and bubblewrap.",
            variables=("HOLDFAST_SANDBOX",),
            parse=_one_of(SANDBOX_LEVELS),
            accepts=f"one of {', '.join(SANDBOX_LEVELS)}",
        ),
    ] = "plain"
    sandbox_network: Annotated[
        bool,
        SettingSpec(
            description="Let isolated tools use the network. Plain ones always can.",
            variables=("HOLDFAST_SANDBOX_NETWORK",),
            parse=_parse_switch,
            accepts="true or false",
        ),
    ] = False
    tool_memory_bytes: Annotated[
        int,
        SettingSpec(
            description="How much memory the processes of one tool call may use.",
            variables=("HOLDFAST_TOOL_MEMORY_BYTES",),
            parse=_integer_between(64 * 1024**2, 2**50),
            accepts="a number of bytes, 67108864 or more",
        ),
    ] = _TOOL_LIMITS.memory_bytes
    tool_processes: Annotated[
        int,
        SettingSpec(
            description="How many processes one tool call may have at once.",
            variables=("HOLDFAST_TOOL_PROCESSES",),
            parse=_integer_between(1, 10_000),
            accepts="a number from 1 to 10000",
        ),
    ] = _TOOL_LIMITS.processes
    tool_open_files: Annotated[
        int,
        SettingSpec(
            description="How many files and sockets a process of a tool may have open.",
            variables=("HOLDFAST_TOOL_OPEN_FILES",),
            parse=_integer_between(16, 2**20),
            accepts="a number from 16 to 1048576",
        ),
    ] = _TOOL_LIMITS.open_files
    tool_file_bytes: Annotated[
        int,
        SettingSpec(
            description="How long a file that a tool writes may be; in an isolated tool's `/tmp`, all of them together.",
            variables=("HOLDFAST_TOOL_FILE_BYTES",),
            parse=_integer_between(0, 2**50),
            accepts="a number of bytes, 0 or more",
        ),
    ] = _TOOL_LIMITS.file_bytes
    tool_output_bytes: Annotated[
        int,
        SettingSpec(
            description="How much a tool call may print before it is ended. Of each stream 1 MiB is kept.",
            variables=("HOLDFAST_TOOL_OUTPUT_BYTES",),
            parse=_integer_between(0, 2**50),
            accepts="a number of bytes, 0 or more",
        ),
    ] = _TOOL_LIMITS.output_bytes
    tool_install_seconds: Annotated[
        float,
        SettingSpec(
            description="How long the installation of a tool's packages may take.",
            variables=("HOLDFAST_TOOL_INSTALL_SECONDS",),
            parse=_parse_seconds,
            accepts="a number of seconds, 0 or more",
        ),
    ] = 600.0
    max_recoveries: Annotated[
        int,
        SettingSpec(
            description="How often a run that a dead server left behind is picked up again before it is ended as failed.",
            variables=("HOLDFAST_MAX_RECOVERIES",),
            parse=_integer_between(0, 1000),
            accepts="a number from 0 to 1000",
        ),
    ] = _LIMITS.max_recoveries
    run_stall_seconds: Annotated[
        float,
        SettingSpec(
            description="How long a run may make no progress before it is ended as failed: nothing new from the model, or no result of a tool beyond the tool's own time. Waiting for a person or for its turn does not count.",
            variables=("HOLDFAST_RUN_STALL_SECONDS",),
            parse=_parse_positive_seconds,
            accepts="a number of seconds, more than 0",
        ),
    ] = _LIMITS.run_stall_seconds
    model_attempts: Annotated[
        int,
        SettingSpec(
            description="How often a model is asked for one answer while its provider fails for a moment (overloaded, rate limit, server error, connection); 1 asks once.",
            variables=("HOLDFAST_MODEL_ATTEMPTS",),
            parse=_integer_between(1, 100),
            accepts="a number from 1 to 100",
        ),
    ] = _LIMITS.model_attempts
    model_retry_seconds: Annotated[
        float,
        SettingSpec(
            description="How long after the first attempt the model may be asked again. A provider that wants a longer wait is not waited for.",
            variables=("HOLDFAST_MODEL_RETRY_SECONDS",),
            parse=_parse_seconds,
            accepts="a number of seconds, 0 or more",
        ),
    ] = _LIMITS.model_retry_seconds
    model_silence_seconds: Annotated[
        float,
        SettingSpec(
            description="How long a model provider's connection may be silent before the call counts as timed out. Reasoning models are silent for minutes.",
            variables=("HOLDFAST_MODEL_SILENCE_SECONDS",),
            parse=_parse_positive_seconds,
            accepts="a number of seconds, more than 0",
        ),
    ] = 600.0
    callback_secret: Annotated[
        str | None,
        SettingSpec(
            description="With it, every callback is signed, so that its receiver knows who sent it; text, or `whsec_` and base64.",
            variables=("HOLDFAST_CALLBACK_SECRET",),
            parse=_parse_callback_secret,
            accepts="text, or whsec_ and base64",
            secret=True,
        ),
    ] = field(default=None, repr=False)
    callback_attempts: Annotated[
        int,
        SettingSpec(
            description="How often a callback is tried before it is given up.",
            variables=("HOLDFAST_CALLBACK_ATTEMPTS",),
            parse=_integer_between(1, 100),
            accepts="a number from 1 to 100",
        ),
    ] = _LIMITS.callback_attempts
    drain_seconds: Annotated[
        float,
        SettingSpec(
            description="How long a server that was told to stop lets its runs go on; what is not finished then is continued by the next start.",
            variables=("HOLDFAST_DRAIN_SECONDS",),
            parse=_parse_seconds,
            accepts="a number of seconds, 0 or more",
        ),
    ] = 10.0
    max_body_bytes: Annotated[
        int,
        SettingSpec(
            description="The largest request body; a larger one is refused (413).",
            variables=("HOLDFAST_MAX_BODY_BYTES",),
            parse=_integer_between(1, 2**40),
            accepts="a number of bytes, 1 or more",
        ),
    ] = 32 * 1024 * 1024
    allowed_private_hosts: Annotated[
        AllowedAddresses,
        SettingSpec(
            description="What callers may name in URLs besides public addresses (callbacks and the like): names, addresses and networks, with commas between them.",
            variables=("HOLDFAST_ALLOWED_PRIVATE_HOSTS",),
            parse=_parse_hosts,
            accepts="names, addresses and networks such as hooks.internal,10.1.0.0/16",
            default="none",
        ),
    ] = _NO_PRIVATE_HOSTS
    provider_traces: Annotated[
        bool,
        SettingSpec(
            description="Keep what each step really sent to its provider and got back, without keys and agents' secrets: `GET /v1/steps/{id}/trace`.",
            variables=("HOLDFAST_PROVIDER_TRACES",),
            parse=_parse_switch,
            accepts="true or false",
        ),
    ] = False
    max_trace_bytes: Annotated[
        int,
        SettingSpec(
            description="Of a longer request or answer only the beginning is kept in its trace.",
            variables=("HOLDFAST_MAX_TRACE_BYTES",),
            parse=_integer_between(1, 2**30),
            accepts="a number of bytes, 1 or more",
        ),
    ] = 256 * 1024
    log_level: Annotated[
        str,
        SettingSpec(
            description=f"How much is logged: {', '.join(LOG_LEVELS)}.",
            variables=("HOLDFAST_LOG_LEVEL",),
            parse=_one_of(LOG_LEVELS),
            accepts=f"one of {', '.join(LOG_LEVELS)}",
        ),
    ] = "info"
    log_format: Annotated[
        str,
        SettingSpec(
            description="How a log line reads: text for people, json for machines.",
            variables=("HOLDFAST_LOG_FORMAT",),
            parse=_one_of(FORMATS),
            accepts=f"one of {', '.join(FORMATS)}",
        ),
    ] = TEXT
    otlp_endpoint: Annotated[
        str | None,
        SettingSpec(
            description="An OpenTelemetry collector that gets traces and metrics over OTLP/HTTP; needs `pip install 'holdfast[otel]'`.",
            variables=("HOLDFAST_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"),
            parse=_text_matching(_HTTP_URL),
            accepts="an address that begins with http:// or https://",
        ),
    ] = field(default=None, repr=False)
    metrics: Annotated[
        str,
        SettingSpec(
            description="Figures for Prometheus at `/metrics`: off, on (for those who may call the API) or open (for everybody who can reach the port); needs `pip install 'holdfast[otel]'`.",
            variables=("HOLDFAST_METRICS",),
            parse=_one_of(METRICS),
            accepts=f"one of {', '.join(METRICS)}",
        ),
    ] = "off"
    telemetry_content: Annotated[
        bool,
        SettingSpec(
            description="Put what people, models and tools say into the traces.",
            variables=("HOLDFAST_TELEMETRY_CONTENT",),
            parse=_parse_switch,
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
    openai_api_key: Annotated[str | None, _key("openai", "OPENAI_API_KEY")] = field(
        default=None, repr=False
    )
    openai_base_url: Annotated[
        str | None, _address("OpenAI's API", "OPENAI_BASE_URL", default="OpenAI's own")
    ] = field(default=None, repr=False)
    anthropic_api_key: Annotated[str | None, _key("anthropic", "ANTHROPIC_API_KEY")] = field(
        default=None, repr=False
    )
    anthropic_base_url: Annotated[
        str | None, _address("Anthropic's API", "ANTHROPIC_BASE_URL", default="Anthropic's own")
    ] = field(default=None, repr=False)
    google_api_key: Annotated[
        str | None, _key("google_ai", "GEMINI_API_KEY", "GOOGLE_API_KEY", extra="google")
    ] = field(default=None, repr=False)
    google_base_url: Annotated[
        str | None,
        _address("Google's Gemini API", "GOOGLE_GEMINI_BASE_URL", default="Google's own"),
    ] = field(default=None, repr=False)
    google_cloud_project: Annotated[
        str | None,
        SettingSpec(
            description="The project for `google_vertex/…` models, which need `pip install 'holdfast[google]'` and Google's application default credentials.",
            variables=("GOOGLE_CLOUD_PROJECT",),
        ),
    ] = None
    google_cloud_location: Annotated[
        str | None,
        SettingSpec(
            description="The region for `google_vertex/…` models.",
            variables=("GOOGLE_CLOUD_LOCATION",),
            default="us-central1",
        ),
    ] = None
    google_vertex_base_url: Annotated[
        str | None,
        _address("the Vertex AI API", "GOOGLE_VERTEX_BASE_URL", default="the region's own"),
    ] = field(default=None, repr=False)
    azure_api_key: Annotated[str | None, _key("azure", "AZURE_OPENAI_API_KEY", "AZURE_API_KEY")] = (
        field(default=None, repr=False)
    )
    azure_base_url: Annotated[
        str | None,
        SettingSpec(
            description="The Azure OpenAI resource for `azure/…` models, whose names are those of its deployments.",
            variables=("AZURE_OPENAI_ENDPOINT", "AZURE_BASE_URL"),
            parse=_text_matching(_HTTP_URL),
            accepts=_AN_ADDRESS,
        ),
    ] = field(default=None, repr=False)
    azure_api_version: Annotated[
        str | None,
        SettingSpec(
            description="A dated version of Azure's API, for resources without the v1 API.",
            variables=("AZURE_API_VERSION", "OPENAI_API_VERSION"),
            default="the v1 API",
        ),
    ] = None
    bedrock_api_key: Annotated[
        str | None, _key("bedrock", "AWS_BEARER_TOKEN_BEDROCK", extra="bedrock")
    ] = field(default=None, repr=False)
    aws_access_key_id: Annotated[
        str | None,
        SettingSpec(
            description="The access key for `bedrock/…` models, in the place of a Bedrock API key.",
            variables=("AWS_ACCESS_KEY_ID",),
            secret=True,
        ),
    ] = field(default=None, repr=False)
    aws_secret_access_key: Annotated[
        str | None,
        SettingSpec(
            description="The secret of that access key.",
            variables=("AWS_SECRET_ACCESS_KEY",),
            secret=True,
        ),
    ] = field(default=None, repr=False)
    aws_session_token: Annotated[
        str | None,
        SettingSpec(
            description="The session token of that access key, if it is a temporary one.",
            variables=("AWS_SESSION_TOKEN",),
            secret=True,
        ),
    ] = field(default=None, repr=False)
    aws_region: Annotated[
        str | None,
        SettingSpec(
            description="The region for `bedrock/…` models.",
            variables=("AWS_REGION", "AWS_DEFAULT_REGION"),
        ),
    ] = None
    bedrock_base_url: Annotated[
        str | None,
        _address(
            "Bedrock's runtime API", "AWS_ENDPOINT_URL_BEDROCK_RUNTIME", default="the region's own"
        ),
    ] = field(default=None, repr=False)
    groq_api_key: Annotated[str | None, _key("groq", "GROQ_API_KEY")] = field(
        default=None, repr=False
    )
    groq_base_url: Annotated[
        str | None, _address("Groq's API", "GROQ_BASE_URL", default="Groq's own")
    ] = field(default=None, repr=False)
    mistral_api_key: Annotated[str | None, _key("mistral", "MISTRAL_API_KEY", extra="mistral")] = (
        field(default=None, repr=False)
    )
    mistral_base_url: Annotated[
        str | None, _address("Mistral's API", "MISTRAL_BASE_URL", default="Mistral's own")
    ] = field(default=None, repr=False)
    openrouter_api_key: Annotated[str | None, _key("openrouter", "OPENROUTER_API_KEY")] = field(
        default=None, repr=False
    )
    openrouter_base_url: Annotated[
        str | None,
        _address("OpenRouter's API", "OPENROUTER_BASE_URL", default="OpenRouter's own"),
    ] = field(default=None, repr=False)
    xai_api_key: Annotated[str | None, _key("xai", "XAI_API_KEY")] = field(default=None, repr=False)
    xai_base_url: Annotated[
        str | None, _address("xAI's API", "XAI_BASE_URL", default="xAI's own")
    ] = field(default=None, repr=False)
    deepseek_api_key: Annotated[str | None, _key("deepseek", "DEEPSEEK_API_KEY")] = field(
        default=None, repr=False
    )
    deepseek_base_url: Annotated[
        str | None, _address("DeepSeek's API", "DEEPSEEK_BASE_URL", default="DeepSeek's own")
    ] = field(default=None, repr=False)
    together_api_key: Annotated[str | None, _key("together", "TOGETHER_API_KEY")] = field(
        default=None, repr=False
    )
    together_base_url: Annotated[
        str | None, _address("Together's API", "TOGETHER_BASE_URL", default="Together's own")
    ] = field(default=None, repr=False)
    ollama_base_url: Annotated[str | None, _server("ollama", "OLLAMA_BASE_URL")] = field(
        default=None, repr=False
    )
    ollama_api_key: Annotated[str | None, _key("ollama", "OLLAMA_API_KEY", if_asked=True)] = field(
        default=None, repr=False
    )
    lmstudio_base_url: Annotated[str | None, _server("lmstudio_openai", "LMSTUDIO_BASE_URL")] = (
        field(default=None, repr=False)
    )
    lmstudio_api_key: Annotated[
        str | None, _key("lmstudio_openai", "LMSTUDIO_API_KEY", if_asked=True)
    ] = field(default=None, repr=False)
    vllm_base_url: Annotated[str | None, _server("vllm", "VLLM_BASE_URL", "VLLM_API_BASE")] = field(
        default=None, repr=False
    )
    vllm_api_key: Annotated[str | None, _key("vllm", "VLLM_API_KEY", if_asked=True)] = field(
        default=None, repr=False
    )
    allowed_model_endpoints: Annotated[
        tuple[str, ...],
        SettingSpec(
            description="Addresses that a request's `llm_config.model_endpoint` may name besides its provider's own, separated by commas. They receive the provider's key.",
            variables=("HOLDFAST_ALLOWED_MODEL_ENDPOINTS",),
            parse=_parse_addresses,
            accepts="addresses that begin with http:// or https://, separated by commas",
            default="none",
        ),
    ] = ()

    def __post_init__(self) -> None:
        if not (self.password or self.insecure or is_loopback(self.host)):
            raise SettingInvalid(
                f"Holdfast does not listen on {self.host} without a password: whoever can reach that "
                "address could read and drive your agents. Set HOLDFAST_PASSWORD, or listen on "
                "127.0.0.1, or add --insecure if something else guards the port."
            )

    @classmethod
    def read(cls, environ: Mapping[str, str], **options: object) -> Self:
        """The settings from options of the same names (None: not given) and the environment.

        SettingInvalid if a value cannot be used.
        """
        if unknown := options.keys() - SPECS.keys():
            raise TypeError(f"There is no setting {', '.join(sorted(unknown))}.")
        values: dict[str, Any] = {"home": _parse_path("~/.holdfast")}
        for name, about in SPECS.items():
            for source, text in _given_values(name, about, environ, options):
                values[name] = _parse(about, source, text)
                break
        values.setdefault("database_url", f"sqlite:///{values['home']}/holdfast.db")
        if not values.keys() & _OPENERS:
            values.setdefault("default_model", GUIDE_HANDLE)
        return cls(**values)

    def select(self, wanted: Iterable[Field[Any]]) -> dict[str, Any]:
        """The settings of these names, for a part of the house that has fields of the same names."""
        return {item.name: getattr(self, item.name) for item in wanted if item.name in SPECS}

    @classmethod
    def find_problems(cls, environ: Mapping[str, str], **options: object) -> list[str]:
        """Every sentence that ``read`` could refuse these with, not only the first."""
        found = []
        for name, about in SPECS.items():
            for source, text in _given_values(name, about, environ, options)[:1]:
                try:
                    _parse(about, source, text)
                except SettingInvalid as error:
                    found.append(str(error))
        if not found:
            try:
                cls.read(environ, **options)
            except SettingInvalid as error:
                found.append(str(error))
        return found

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must never be read in a log line."""
        named = [getattr(self, name) for name, about in SPECS.items() if about.secret]
        urls = [urlsplit(url).password for url in (self.database_url, self.redis_url) if url]
        plain = [unquote(password) for password in urls if password]
        return tuple(dict.fromkeys(secret for secret in (*named, *urls, *plain) if secret))

    @property
    def limits(self) -> Limits:
        return Limits(
            busy_wait_seconds=self.busy_wait_seconds,
            tool_timeout_seconds=self.tool_timeout_seconds,
            max_recoveries=self.max_recoveries,
            model_attempts=self.model_attempts,
            model_retry_seconds=self.model_retry_seconds,
            run_stall_seconds=self.run_stall_seconds,
            max_trace_bytes=self.max_trace_bytes if self.provider_traces else 0,
            callback_attempts=self.callback_attempts,
        )

    @property
    def private_paths(self) -> tuple[Path, ...]:
        """What is nobody's but the server's: the home, and a database file that is kept elsewhere."""
        url = self.database_url
        database = Path(url.removeprefix(_SQLITE)) if url.startswith(_SQLITE) else self.home
        beside = tuple(Path(f"{database}{end}") for end in ("", "-wal", "-shm"))
        return (self.home,) if database.is_relative_to(self.home) else (self.home, *beside)

    @property
    def sandbox_limits(self) -> SandboxLimits:
        return SandboxLimits(
            memory_bytes=self.tool_memory_bytes,
            processes=self.tool_processes,
            open_files=self.tool_open_files,
            file_bytes=self.tool_file_bytes,
            output_bytes=self.tool_output_bytes,
        )


SPECS: Final[Mapping[str, SettingSpec]] = {
    name: hint.__metadata__[0]
    for name, hint in get_type_hints(Settings, include_extras=True).items()
}


# With one of these there is a provider; keys and regions of whole clouds are often set for something else.
_OPENERS: Final = {name for name in SPECS if name.endswith("_api_key")} | {
    "lmstudio_base_url",
    "ollama_base_url",
    "vllm_base_url",
}


def find_unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """Variables that look like settings and are none: most likely misspelt."""
    known = {variable for about in SPECS.values() for variable in about.variables}
    known.add(URL_VARIABLE)
    return sorted(name for name in environ if name.startswith("HOLDFAST_") and name not in known)


def option_name(name: str) -> str:
    return "--" + name.replace("_", "-")


def is_switch(name: str) -> bool:
    """Whether the setting is on or off, and its option needs no value."""
    return SPECS[name].parse is _parse_switch


def has_option(name: str) -> bool:
    """A provider's own variables have none, and neither have secrets."""
    about = SPECS[name]
    return not about.secret and about.variables[0].startswith("HOLDFAST_")


def default_text(name: str) -> str:
    """A setting's default, for people to read."""
    if (words := SPECS[name].default) is not None:
        return words
    match next(item.default for item in fields(Settings) if item.name == name):
        case None:
            return "none"
        case bool() as switch:
            return str(switch).lower()
        case float() as number:
            return f"{number:g}"
        case other:
            return str(other)


def is_loopback(host: str) -> bool:
    """Whether nobody but this machine can reach the address. A name that we do not know may be anything."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _given_values(
    name: str, about: SettingSpec, environ: Mapping[str, str], options: Mapping[str, object]
) -> list[tuple[str, str]]:
    """Who gave the setting and what, the strongest first. An empty variable is as good as none."""
    chosen = options.get(name)
    from_option = [] if chosen is None else [(option_name(name), str(chosen))]
    return from_option + [(key, environ[key]) for key in about.variables if environ.get(key)]


def _parse(about: SettingSpec, source: str, text: str) -> Any:
    try:
        return about.parse(text)
    except ValueError:
        shown = "not usable" if about.secret else repr(_CREDENTIALS.sub("://…@", text))
        raise SettingInvalid(f"{source} is {shown}; it must be {about.accepts}.") from None
