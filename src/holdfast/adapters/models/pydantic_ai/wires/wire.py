"""A wire: one API over which models are asked. It builds pydantic-ai's model and settings."""

from typing import ClassVar, Protocol

from pydantic_ai.messages import ModelMessage
from pydantic_ai.models import Model
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.settings import ModelSettings

from holdfast.adapters.models.pydantic_ai.errors import SdkFailures
from holdfast.core.messages import Thinking
from holdfast.ports.model import Question


class Wire(Protocol):
    # The exceptions of its SDK that pydantic-ai does not translate.
    failures: ClassVar[SdkFailures]

    def owns_thinking(self, thinking: Thinking) -> bool:
        """Whether this thinking came over this wire: no other wire can use it."""
        ...

    def model(self, name: str, *, strict: bool) -> Model:
        """A model to ask; the bridge caches it."""
        ...

    def output_definition(self, model: Model, question: Question) -> OutputObjectDefinition | None:
        """The response format, where pydantic-ai sends it; None where ``settings`` does."""
        ...

    def settings(
        self, model: Model, question: Question, history: list[ModelMessage]
    ) -> ModelSettings:
        """The settings that were asked for, as far as this model has them."""
        ...
