"""Which providers are configured; and, if asked to, whether they answer."""

from urllib.parse import urlsplit

from holdfast.adapters.models.discovery.discovery import WITHOUT_MODEL_LIST, ModelDiscovery
from holdfast.adapters.models.handles import Account, ProviderSettings
from holdfast.adapters.models.providers.table import PROVIDERS
from holdfast.ports.doctor_check import Check, Verdict

_NO_PROVIDER = (
    "No provider is configured: agents can use holdfast/guide, which is a script. Set OPENAI_API_KEY, "
    "ANTHROPIC_API_KEY or another (docs/configuration.md)."
)


async def check_providers(settings: ProviderSettings, *, ask: bool) -> list[Check]:
    """Over the network only if asked to."""
    if not settings.configured:
        return [Check(Verdict.NOTE, "providers", _NO_PROVIDER)]
    inquiry = ModelDiscovery()
    if ask:
        await inquiry.refresh(settings.accounts.values())
    return [
        _check_listing(name, account, inquiry)
        if ask and name in settings.accounts
        else _check_configured(name, account)
        for name, account in sorted(settings.configured.items())
    ]


def _check_configured(name: str, account: Account) -> Check:
    row = PROVIDERS[name]
    if not row.is_installed:
        words = f"{name} is configured, but needs an extra: pip install 'holdfast[{row.extra}]'"
        return Check(Verdict.PROBLEM, "providers", words)
    return Check(Verdict.GOOD, "providers", f"{name} is configured{_location(account)}.")


def _check_listing(name: str, account: Account, inquiry: ModelDiscovery) -> Check:
    if name in WITHOUT_MODEL_LIST:
        words = (
            f"{name} is configured{_location(account)}; it does not tell which models there are."
        )
        return Check(Verdict.NOTE, "providers", words)
    listed = inquiry.last_list(name)
    if listed is None:
        words = f"{name} does not answer{_location(account)}, or refuses its key."
        return Check(Verdict.PROBLEM, "providers", words)
    words = f"{name} answers{_location(account)} and has {len(listed.models)} models."
    return Check(Verdict.GOOD, "providers", words)


def _location(account: Account) -> str:
    """Only the server: the rest of an address may hold what opens it."""
    if not account.base_url:
        return ""
    parts = urlsplit(account.base_url)
    return f" at {parts.scheme}://{parts.netloc.rpartition('@')[2]}"
