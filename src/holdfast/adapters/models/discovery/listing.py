"""Fetches a provider's list of models, and checks keys with it.

Importing this module imports the HTTP client (0.2 s): ``discovery`` does that in a thread.
"""

import ssl
from functools import lru_cache
from typing import Final

import httpx2

from holdfast.adapters.models.accounts import Account
from holdfast.adapters.models.discovery.list_apis import LIST_APIS, LISTING_FAILURES
from holdfast.adapters.models.discovery.model_list import ModelList
from holdfast.adapters.models.transport import StreamTransport
from holdfast.errors import ModelAuthFailed, ModelError

_KEY_REFUSED_STATUSES: Final = (400, 401, 403)


async def fetch(account: Account) -> ModelList | None:
    """The provider's list; None if it cannot be reached, or answers with something else."""
    try:
        return await _fetch(account)
    except LISTING_FAILURES:
        return None


async def verify(account: Account) -> None:
    """Have the provider list its models with this key. ModelError for any other answer."""
    try:
        await _fetch(account)
    except httpx2.HTTPStatusError as error:
        status = error.response.status_code
        if status in _KEY_REFUSED_STATUSES:
            raise ModelAuthFailed(
                f"{account.provider} refused the key (status {status})."
            ) from None
        raise ModelError(f"{account.provider} answered with status {status}.") from None
    except LISTING_FAILURES as error:
        # The error's text may contain the address with the key in it.
        raise ModelError(
            f"{account.provider} could not be asked: {type(error).__name__}."
        ) from None


@lru_cache(maxsize=1)
def load_certificates() -> ssl.SSLContext:
    """Loading them takes 20 ms: once, and in a thread."""
    return httpx2.create_ssl_context()


async def _fetch(account: Account) -> ModelList:
    async with _open_client(account) as client:
        return await LIST_APIS[account.row.listing](account, client)


def _open_client(account: Account) -> httpx2.AsyncClient:
    if account.is_plain_http:
        # There is nothing to verify.
        transport = StreamTransport(None)
        return httpx2.AsyncClient(transport=transport, trust_env=not account.is_loopback)
    return httpx2.AsyncClient(verify=load_certificates())
