"""The settings of a server: read once at the start, from the command line first, from the environment second.

What a setting causes is decided in ``assembly``.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, Self
from urllib.parse import unquote, urlsplit

from holdfast.config.connection_fields import ConnectionFields
from holdfast.config.parsing import parse_path, parse_switch
from holdfast.config.spec import SettingSpec
from holdfast.config.specs import PROVIDER_SETTINGS, SELECTING_SETTINGS, SPECS
from holdfast.core.addresses import is_loopback
from holdfast.core.models import GUIDE_HANDLE
from holdfast.core.servers import Role
from holdfast.errors import SettingInvalid
from holdfast.http.pending_requests import ConnectionLimits
from holdfast.ports.sandbox import SandboxLimits
from holdfast.ports.services import Limits

# Where commands find a server that is running; the server itself does not read it.
URL_VARIABLE: Final = "HOLDFAST_URL"

_SQLITE: Final = "sqlite:///"
# Up to the last @: a password that is not quoted as it should be may contain one.
_CREDENTIALS = re.compile(r"://[^:/@]*:.*@")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(ConnectionFields):
    """What the operator chose. Secrets never show in its ``repr``."""

    # The variables of each provider that are set, by the provider's name and the variable's name in its row.
    providers: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if not (self.password or self.insecure or is_loopback(self.host)):
            raise SettingInvalid(
                f"Holdfast does not listen on {self.host} without a password: anyone who can reach that "
                "address could read and drive your agents. Set HOLDFAST_PASSWORD, or listen on "
                "127.0.0.1, or add --insecure if something else guards the port."
            )
        if self.database_url.startswith(_SQLITE):
            self._refuse_several_processes()

    def _refuse_several_processes(self) -> None:
        if self.role is not Role.ALL:
            given = f"the role {self.role}"
        elif self.processes > 1:
            given = f"{self.processes} processes"
        else:
            return
        raise SettingInvalid(
            f"SQLite is for one process that does everything, so Holdfast does not start with {given}. "
            "Set HOLDFAST_DATABASE_URL=postgresql://… to use several processes or servers."
        )

    @classmethod
    def read(cls, environ: Mapping[str, str], **options: object) -> Self:
        """The settings from options of the same names (None: not given) and the environment.

        SettingInvalid if a value cannot be used.
        """
        if unknown := options.keys() - SPECS.keys():
            raise TypeError(f"There is no setting {', '.join(sorted(unknown))}.")
        values: dict[str, Any] = {"home": parse_path("~/.holdfast")}
        for name, spec in SPECS.items():
            for source, text in _given_values(name, spec, environ, options)[:1]:
                values[name] = _parse(spec, source, text)
        values.setdefault("database_url", f"{_SQLITE}{values['home']}/holdfast.db")
        if not values.keys() & SELECTING_SETTINGS:
            values.setdefault("default_model", GUIDE_HANDLE)
        providers: dict[str, dict[str, str]] = {}
        for name in values.keys() & PROVIDER_SETTINGS.keys():
            provider, variable = PROVIDER_SETTINGS[name]
            providers.setdefault(provider, {})[variable] = values.pop(name)
        return cls(**values, providers=providers)

    @classmethod
    def find_problems(cls, environ: Mapping[str, str], **options: object) -> list[str]:
        """Every sentence that ``read`` could refuse these with, not only the first."""
        found = []
        for name, spec in SPECS.items():
            for source, text in _given_values(name, spec, environ, options)[:1]:
                try:
                    _parse(spec, source, text)
                except SettingInvalid as error:
                    found.append(str(error))
        if not found:
            try:
                cls.read(environ, **options)
            except SettingInvalid as error:
                found.append(str(error))
        return found

    def find(self, name: str) -> Any:
        """The value of a setting, also of a provider's; None if it is not set."""
        if name in PROVIDER_SETTINGS:
            provider, variable = PROVIDER_SETTINGS[name]
            return self.providers.get(provider, {}).get(variable)
        return getattr(self, name)

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must never be read in a log line."""
        named = [self.find(name) for name, spec in SPECS.items() if spec.secret]
        addresses = (self.database_url, self.listen_url, self.redis_url)
        urls = [urlsplit(url).password for url in addresses if url]
        plain = [unquote(password) for password in urls if password]
        return tuple(dict.fromkeys(secret for secret in (*named, *urls, *plain) if secret))

    @property
    def limits(self) -> Limits:
        return Limits(
            busy_wait_seconds=self.busy_wait_seconds,
            tool_timeout_seconds=self.tool_timeout_seconds,
            mcp_connect_seconds=self.mcp_connect_seconds,
            mcp_call_seconds=self.mcp_call_seconds,
            max_recoveries=self.max_recoveries,
            max_runs=self.max_runs,
            model_attempts=self.model_attempts,
            model_retry_seconds=self.model_retry_seconds,
            run_stall_seconds=self.run_stall_seconds,
            max_trace_bytes=self.max_trace_bytes if self.provider_traces else 0,
            callback_attempts=self.callback_attempts,
            max_file_mb=self.max_file_mb,
        )

    @property
    def connection_limits(self) -> ConnectionLimits:
        return ConnectionLimits(
            connections=self.max_connections,
            pending=self.max_pending_connections,
            pending_per_address=self.max_pending_per_address,
            header_bytes=self.max_header_bytes,
            header_count=self.max_headers,
            header_seconds=self.header_seconds,
            body_seconds=self.body_seconds,
        )

    @property
    def sandbox_limits(self) -> SandboxLimits:
        return SandboxLimits(
            memory_bytes=self.tool_memory_bytes,
            processes=self.tool_processes,
            open_files=self.tool_open_files,
            file_bytes=self.tool_file_bytes,
            folder_bytes=self.tool_folder_bytes,
            output_bytes=self.tool_output_bytes,
        )

    @property
    def document_limits(self) -> SandboxLimits:
        return SandboxLimits(
            memory_bytes=self.document_memory_bytes, file_bytes=self.document_text_bytes
        )


def find_unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """Variables that look like settings and are none: most likely misspelt."""
    known = {variable for spec in SPECS.values() for variable in spec.variables}
    known.add(URL_VARIABLE)
    return sorted(name for name in environ if name.startswith("HOLDFAST_") and name not in known)


def option_name(name: str) -> str:
    return "--" + name.replace("_", "-")


def is_switch(name: str) -> bool:
    """Whether the setting is on or off, and its option needs no value."""
    return SPECS[name].parse is parse_switch


def has_option(name: str) -> bool:
    """Secrets have no option, and neither have a provider's variables."""
    spec = SPECS[name]
    return not spec.secret and spec.variables[0].startswith("HOLDFAST_")


def default_text(name: str) -> str:
    """A setting's default, for people to read."""
    if (text := SPECS[name].default) is not None:
        return text
    match next(item.default for item in fields(Settings) if item.name == name):
        case None:
            return "none"
        case bool() as switch:
            return str(switch).lower()
        case float() as number:
            return f"{number:g}"
        case other:
            return str(other)


def _given_values(
    name: str, spec: SettingSpec, environ: Mapping[str, str], options: Mapping[str, object]
) -> list[tuple[str, str]]:
    """The sources of the setting and their texts, the strongest first. An empty variable counts as unset."""
    chosen = options.get(name)
    from_option = [] if chosen is None else [(option_name(name), str(chosen))]
    return from_option + [(key, environ[key]) for key in spec.variables if environ.get(key)]


def _parse(spec: SettingSpec, source: str, text: str) -> Any:
    try:
        return spec.parse(text)
    except ValueError:
        shown = "not usable" if spec.secret else repr(_CREDENTIALS.sub("://…@", text))
        raise SettingInvalid(f"{source} is {shown}; it must be {spec.accepts}.") from None
