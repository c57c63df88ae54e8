"""The checks of ``holdfast doctor``, with the adapters that a server with the same settings would have."""

import asyncio

from holdfast.adapters.bell.doctor_checks import check_notifications
from holdfast.adapters.embedder.doctor_checks import check_embeddings
from holdfast.adapters.embedder.router import EmbedderRouter
from holdfast.adapters.models import doctor_checks as model_checks
from holdfast.adapters.sandbox.doctor_checks import (
    check_sandbox,
    check_tool_access,
    check_tool_requests,
)
from holdfast.adapters.store.doctor_checks import (
    check_database_files,
    check_home,
    check_servers,
    check_store,
    check_vectors,
)
from holdfast.assembly.mcp import check_mcp_file
from holdfast.assembly.models import build_provider_settings
from holdfast.assembly.tools import build_isolation, private_paths
from holdfast.config import Settings
from holdfast.ports.doctor_check import Check


async def run_doctor_checks(settings: Settings, *, check_providers: bool) -> list[Check]:
    """Whether a server with these settings would work here. Changes nothing."""

    def sandbox_checks() -> list[Check]:
        return [
            *check_sandbox(
                build_isolation(settings), network=settings.sandbox_network, home=settings.home
            ),
            *check_tool_access(
                user=settings.sandbox_user,
                writable=settings.sandbox_writable,
                private=private_paths(settings),
                home=settings.home,
                is_plain=settings.sandbox == "plain",
            ),
            check_tool_requests(has_password=bool(settings.password)),
        ]

    providers = build_provider_settings(settings)
    embedder = EmbedderRouter(providers, timeout_seconds=settings.embedding_timeout_seconds)
    embeddings = [
        handle for handle in (settings.default_embedding, settings.message_embedding) if handle
    ]
    return [
        *check_home(settings.home),
        await check_store(settings.database_url, home=settings.home),
        *check_database_files(settings.database_url),
        *await check_notifications(settings.database_url, listen_url=settings.listen_url),
        *await check_servers(settings.database_url),
        *await check_vectors(settings.database_url),
        *await model_checks.check_providers(providers, ask=check_providers),
        *await check_embeddings(embedder, embeddings, ask=check_providers),
        *await asyncio.to_thread(sandbox_checks),
        *check_mcp_file(settings.mcp_config),
    ]
