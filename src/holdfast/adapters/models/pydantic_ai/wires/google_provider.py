"""pydantic-ai's provider for Google's APIs. Their SDK is an extra."""

import httpx2
from google.auth import exceptions as auth
from google.genai import Client
from pydantic_ai.providers import Provider
from pydantic_ai.providers.google import GoogleProvider
from pydantic_ai.providers.google_cloud import GoogleCloudProvider

from holdfast.adapters.models.accounts import Account
from holdfast.adapters.models.pydantic_ai.errors import SdkFailures

GOOGLE_FAILURES = SdkFailures(
    (auth.GoogleAuthError,), transient=(auth.TransportError, auth.TimeoutError)
)


def build_google_provider(account: Account, http: httpx2.AsyncClient) -> Provider[Client]:
    if account.provider == "google_vertex":
        return GoogleCloudProvider(
            project=account.options["project"],
            location=account.options["location"],
            base_url=account.base_url,
            http_client=http,
        )
    return GoogleProvider(
        api_key=account.api_key,
        base_url=account.base_url or account.row.address,
        http_client=http,
    )
