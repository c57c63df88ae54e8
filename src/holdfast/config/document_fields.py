"""The settings of uploaded documents: what extracting the text of one may use."""

from dataclasses import dataclass
from typing import Annotated, Final

from holdfast.config.parsing import integer_between, parse_positive_seconds
from holdfast.config.spec import SettingSpec
from holdfast.config.tool_fields import ToolFields
from holdfast.ports.sandbox import SandboxLimits

_DEFAULT_TEXT_BYTES: Final = 100 * 1024**2


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentFields(ToolFields):
    document_seconds: Annotated[
        float,
        SettingSpec(
            description="How long extracting the text of one document (PDF, HTML, Office) may take.",
            variables=("HOLDFAST_DOCUMENT_SECONDS",),
            parse=parse_positive_seconds,
            accepts="a number of seconds above 0",
        ),
    ] = 60.0
    document_memory_bytes: Annotated[
        int,
        SettingSpec(
            description="How much memory extracting the text of one document may use.",
            variables=("HOLDFAST_DOCUMENT_MEMORY_BYTES",),
            parse=integer_between(256 * 1024**2, 2**50),
            accepts="a number of bytes, 268435456 or more",
        ),
    ] = SandboxLimits().memory_bytes
    document_text_bytes: Annotated[
        int,
        SettingSpec(
            description="How much text is taken from one document; the rest is left out. Text files are taken whole.",
            variables=("HOLDFAST_DOCUMENT_TEXT_BYTES",),
            parse=integer_between(1024, 2**50),
            accepts="a number of bytes, 1024 or more",
        ),
    ] = _DEFAULT_TEXT_BYTES
