"""The configuration of a server. This is the whole of what other modules use; the parts are in the modules below.

``fields`` declares the settings, ``specs`` adds those of the providers, ``settings`` reads them.
"""

from holdfast.config.settings import (
    URL_VARIABLE,
    Settings,
    default_text,
    find_unknown_variables,
    has_option,
    is_switch,
    option_name,
)
from holdfast.config.spec import SettingSpec
from holdfast.config.specs import SPECS

__all__ = [
    "SPECS",
    "URL_VARIABLE",
    "SettingSpec",
    "Settings",
    "default_text",
    "find_unknown_variables",
    "has_option",
    "is_switch",
    "option_name",
]
