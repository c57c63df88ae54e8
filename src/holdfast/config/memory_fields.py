"""The settings of memory: which models make vectors of what is stored."""

from dataclasses import dataclass
from typing import Annotated

from holdfast.adapters.models.providers.table import EXAMPLE_EMBEDDING_HANDLE
from holdfast.config.fields import HANDLE, SettingFields
from holdfast.config.parsing import parse_positive_seconds, text_matching
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
