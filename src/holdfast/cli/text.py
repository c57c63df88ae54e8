"""Text that commands print: tables for people, JSON for scripts."""

import json
from collections.abc import Sequence


def align_columns(rows: Sequence[Sequence[str]]) -> str:
    """Align the cells in columns. Line breaks inside a cell become spaces, so that each row is one line."""
    plain = [[" ".join(cell.split()) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*plain, strict=True)]
    padded = ["  ".join(map(str.ljust, row, widths)) for row in plain]
    return "\n".join(line.rstrip() for line in padded)


def to_json(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)
