"""What the bridge must know of a provider besides pydantic-ai's own model class."""

from typing import ClassVar, Protocol

from pydantic_ai.messages import ModelMessage
from pydantic_ai.models import Model
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.settings import ModelSettings

from holdfast.adapters.models.pydantic_ai.errors import SdkFailures
from holdfast.core.messages import Thinking
from holdfast.ports.model import Question


class Wire(Protocol):
    # What its SDK raises that pydantic-ai does not translate.
    failures: ClassVar[SdkFailures]

    def owns_thinking(self, thinking: Thinking) -> bool:
        """Whether this thinking came over this wire: nobody else can read it."""
        ...

    def model(self, name: str, *, strict: bool) -> Model:
        """A model to ask; the bridge keeps it."""
        ...

    def output_definition(self, model: Model, question: Question) -> OutputObjectDefinition | None:
        """The form that the answer must have, where pydantic-ai tells the provider; None where
        ``settings`` does."""
        ...

    def settings(
        self, model: Model, question: Question, history: list[ModelMessage]
    ) -> ModelSettings:
        """What was asked of the model, as far as this model can do it."""
        ...
