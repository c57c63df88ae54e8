"""Checks of the providers: which are configured, and on request whether they answer."""

from urllib.parse import urlsplit

from holdfast.adapters.models.accounts import Account, ProviderSettings
from holdfast.adapters.models.discovery.discovery import ModelDiscovery
from holdfast.adapters.models.providers.table import SUGGESTED_VARIABLES
from holdfast.core.models import GUIDE_HANDLE
from holdfast.ports.doctor_check import Check, Verdict

_NO_PROVIDER = (
    f"No provider is configured: agents can use {GUIDE_HANDLE}, which is a script. Set "
    f"{', '.join(SUGGESTED_VARIABLES)} or another (docs/configuration.md)."
)


async def check_providers(settings: ProviderSettings, *, ask: bool) -> list[Check]:
    """The network is used only if ``ask`` is set."""
    if not settings.configured:
        return [Check(Verdict.NOTE, "providers", _NO_PROVIDER)]
    discovery = ModelDiscovery()
    if ask:
        await discovery.refresh(settings.accounts.values())
    return [
        _check_listing(name, account, discovery)
        if ask and name in settings.accounts
        else _check_configured(name, account)
        for name, account in sorted(settings.configured.items())
    ]


def _check_configured(name: str, account: Account) -> Check:
    row = account.row
    if not row.is_installed:
        message = f"{name} is configured, but needs an extra: pip install 'holdfast[{row.extra}]'"
        return Check(Verdict.PROBLEM, "providers", message)
    return Check(Verdict.GOOD, "providers", f"{name} is configured{_location(account)}.")


def _check_listing(name: str, account: Account, discovery: ModelDiscovery) -> Check:
    if not account.row.has_model_list:
        message = f"{name} is configured{_location(account)}; it does not list its models."
        return Check(Verdict.NOTE, "providers", message)
    listed = discovery.last_list(name)
    if listed is None:
        message = f"{name} does not answer{_location(account)}, or refuses its key."
        return Check(Verdict.PROBLEM, "providers", message)
    message = f"{name} answers{_location(account)} and has {len(listed.models)} models."
    return Check(Verdict.GOOD, "providers", message)


def _location(account: Account) -> str:
    """Only scheme and host: the rest of an address may contain a key."""
    if not account.base_url:
        return ""
    parts = urlsplit(account.base_url)
    return f" at {parts.scheme}://{parts.netloc.rpartition('@')[2]}"
