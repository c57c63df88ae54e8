"""The table of all settings by name: those of the server, and those that the rows of the providers declare.

``--help`` and docs/configuration.md are made from it.
"""

from collections.abc import Mapping
from typing import Final, get_type_hints

from holdfast.adapters.models.providers.row import Variable
from holdfast.adapters.models.providers.table import PROVIDERS
from holdfast.config.connection_fields import ConnectionFields
from holdfast.config.parsing import HTTP_URL_TEXT, parse_http_url
from holdfast.config.spec import SettingSpec

_PROVIDER_VARIABLES: Final = {
    f"{row.name}_{variable.name}": (row.name, variable)
    for row in PROVIDERS.values()
    for variable in row.variables
}

# The name of a provider's setting: the provider, and the variable of its row.
PROVIDER_SETTINGS: Final[Mapping[str, tuple[str, str]]] = {
    name: (provider, variable.name) for name, (provider, variable) in _PROVIDER_VARIABLES.items()
}

# An operator who has set one of these wants that provider's models.
SELECTING_SETTINGS: Final = frozenset(
    f"{row.name}_{variable.name}"
    for row in PROVIDERS.values()
    for variable in row.selecting_variables
)


def _provider_spec(variable: Variable) -> SettingSpec:
    return SettingSpec(
        description=variable.description,
        variables=variable.environment,
        parse=parse_http_url if variable.is_address else str,
        accepts=HTTP_URL_TEXT if variable.is_address else "any text",
        default=variable.default_text or variable.default or "none",
        secret=variable.is_secret,
    )


SPECS: Final[Mapping[str, SettingSpec]] = {
    **{
        name: hint.__metadata__[0]
        for name, hint in get_type_hints(ConnectionFields, include_extras=True).items()
    },
    **{name: _provider_spec(variable) for name, (_, variable) in _PROVIDER_VARIABLES.items()},
}
