"""Which providers are configured; and, if asked to, whether they answer."""

from urllib.parse import urlsplit

from holdfast.adapters.models.handles import Account, ProviderSettings
from holdfast.adapters.models.inquiry import CANNOT_SAY, Inquiry
from holdfast.adapters.models.providers import PROVIDERS
from holdfast.ports.finding import Finding, Verdict

_NONE = (
    "No provider is configured: agents can use holdfast/guide, which is a script. Set OPENAI_API_KEY, "
    "ANTHROPIC_API_KEY or another (docs/configuration.md)."
)


async def examine_providers(settings: ProviderSettings, *, ask: bool) -> list[Finding]:
    """Over the network only if asked to."""
    if not settings.configured:
        return [Finding(Verdict.NOTE, "providers", _NONE)]
    inquiry = Inquiry()
    if ask:
        await inquiry.ask(settings.accounts.values())
    return [
        _answer(name, account, inquiry)
        if ask and name in settings.accounts
        else _word(name, account)
        for name, account in sorted(settings.configured.items())
    ]


def _word(name: str, account: Account) -> Finding:
    row = PROVIDERS[name]
    if not row.is_installed:
        words = f"{name} is configured, but needs an extra: pip install 'holdfast[{row.extra}]'"
        return Finding(Verdict.PROBLEM, "providers", words)
    return Finding(Verdict.GOOD, "providers", f"{name} is configured{_where(account)}.")


def _answer(name: str, account: Account, inquiry: Inquiry) -> Finding:
    if name in CANNOT_SAY:
        words = f"{name} is configured{_where(account)}; it does not tell which models there are."
        return Finding(Verdict.NOTE, "providers", words)
    listed = inquiry.known(name)
    if listed is None:
        words = f"{name} does not answer{_where(account)}, or refuses its key."
        return Finding(Verdict.PROBLEM, "providers", words)
    words = f"{name} answers{_where(account)} and has {len(listed.models)} models."
    return Finding(Verdict.GOOD, "providers", words)


def _where(account: Account) -> str:
    """Only the server: the rest of an address may hold what opens it."""
    if not account.base_url:
        return ""
    parts = urlsplit(account.base_url)
    return f" at {parts.scheme}://{parts.netloc.rpartition('@')[2]}"
