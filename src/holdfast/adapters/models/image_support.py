"""Which models accept images. A model that is sent one all the same refuses it again in every later turn.

What the provider's list says decides; else the model's name; else it is assumed to accept them.
"""

from holdfast.adapters.models.discovery.model_list import ModelList
from holdfast.adapters.models.providers.known_models import name_allows_images


def supports_images(name: str, listed: ModelList | None) -> bool:
    """Whether the model of this name accepts images."""
    models = listed.models if listed else ()
    stated = next((model.supports_images for model in models if model.name == name), None)
    return name_allows_images(name) if stated is None else stated
