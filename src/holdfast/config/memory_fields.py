"""The settings of memory: which models make vectors of what is stored."""

from dataclasses import dataclass
from typing import Annotated

from holdfast.adapters.models.providers.table import EXAMPLE_EMBEDDING_HANDLE
from holdfast.config.fields import HANDLE, SettingFields
from holdfast.config.parsing import integer_between, parse_positive_seconds, text_matching
from holdfast.config.spec import SettingSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFields(SettingFields):
    default_embedding: Annotated[
        str | None,
        SettingSpec(
            description="The embedding model of agents, archives and folders that are created without one.",
            variables=("HOLDFAST_DEFAULT_EMBEDDING", "LETTA_DEFAULT_EMBEDDING_HANDLE"),
            parse=text_matching(HANDLE),
            accepts=f"a handle such as {EXAMPLE_EMBEDDING_HANDLE}",
            default="none: text is found by its words",
        ),
    ] = None
    embedding_timeout_seconds: Annotated[
        float,
        SettingSpec(
            description="How long one request for vectors to an embedding provider may take.",
            variables=("HOLDFAST_EMBEDDING_TIMEOUT_SECONDS",),
            parse=parse_positive_seconds,
            accepts="a number of seconds, more than 0",
        ),
    ] = 10.0
    message_embedding: Annotated[
        str | None,
        SettingSpec(
            description="The handle of the embedding model that makes vectors of messages, so that they are found by what they mean. Of messages that are stored from then on.",
            variables=("HOLDFAST_MESSAGE_EMBEDDING",),
            parse=text_matching(HANDLE),
            accepts=f"a handle such as {EXAMPLE_EMBEDDING_HANDLE}",
            default="none: messages are found by their words",
        ),
    ] = None
    vector_cache_mb: Annotated[
        int,
        SettingSpec(
            description="How many megabytes of vectors a server on SQLite keeps in memory. An archive whose vectors do not fit is searched on the disk, which is slower.",
            variables=("HOLDFAST_VECTOR_CACHE_MB",),
            parse=integer_between(0, 1_000_000),
            accepts="a number from 0 to 1000000",
        ),
    ] = 256
