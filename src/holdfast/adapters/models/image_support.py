"""Which models cannot see pictures. A model that is shown one all the same refuses it in every later turn.

What its server says holds; else what its name says, wherever it is offered; else it is taken to see.
"""

import re
from typing import Final

from holdfast.adapters.models.discovery.model_list import ModelList
from holdfast.adapters.models.providers.table import LMSTUDIO, MISTRAL, OLLAMA, OPENROUTER

# Their lists tell it.
LISTS_IMAGE_SUPPORT: Final = frozenset({LMSTUDIO, MISTRAL, OLLAMA, OPENROUTER})

# Members of blind families that do see say so in their names.
_WITH_IMAGES = re.compile(r"vision|multimodal|omni|vl\b|-vl-|llava|3\.2-(11|90)b|ocr")
_WITHOUT_IMAGES = re.compile(
    r"gpt-3\.5"
    r"|gpt-4(-\d{4}|-32k.*|-(1106|0125|turbo)-preview)?$"
    r"|gpt-oss|o1-mini|o1-preview|o3-mini"
    r"|claude-(2|instant)"
    r"|deepseek-?(chat|reasoner|coder|llm|r\d|v\d)"
    r"|(code|tiny)llama|llama-?[23](?!\d)"
    r"|mixtral|codestral|mathstral|open-mistral|mistral-(tiny|7b)|mistral-large-24"
    r"|qwen-?(1\.5|2|2\.5|3)(?![.\d])|qwq"
    r"|phi-?[234](?!\d)|gemma-?2(?!\d)|gemma(:|-\db)"
    r"|grok-(beta|2|3|code)"
    r"|nova-micro|titan-text|command-(r|light|text|a)|jamba"
    r"|kimi-k2(?![.\d])|glm-[45](\.\d)?(?![.\dv])|minimax-m[12]"
)


def supports_images(name: str, listed: ModelList | None) -> bool:
    """Whether the model of this name can be shown pictures."""
    said = (
        next((model.supports_images for model in listed.models if model.name == name), None)
        if listed
        else None
    )
    if said is not None:
        return said
    stem = name.lower().removeprefix("ft:").rpartition("/")[2]
    return _WITHOUT_IMAGES.search(stem) is None or _WITH_IMAGES.search(stem) is not None
