"""What the bridge must know of a provider besides pydantic-ai's own model class."""

from typing import Protocol

from pydantic_ai.messages import ModelMessage
from pydantic_ai.models import Model
from pydantic_ai.settings import ModelSettings

from holdfast.core.messages import Thinking
from holdfast.ports.model import Question


class Wire(Protocol):
    def thought(self, thinking: Thinking) -> bool:
        """Whether this thinking came over this wire: nobody else can read it."""
        ...

    def model(self, name: str, *, strict: bool) -> Model:
        """A model to ask; the bridge keeps it."""
        ...

    def settings(
        self, model: Model, question: Question, history: list[ModelMessage]
    ) -> ModelSettings:
        """What was asked of the model, as far as this model can do it."""
        ...
