"""Which home folders an isolated tool sees: those that its Python is in."""

from pathlib import Path

from holdfast.adapters.sandbox.isolation import interpreter_paths


def homes_of_python() -> list[str]:
    homes = [path for path in Path("/home").glob("*") if path.is_dir()]
    return [
        str(home)
        for home in homes
        if any(Path(path).is_relative_to(home) for path in interpreter_paths())
    ]
