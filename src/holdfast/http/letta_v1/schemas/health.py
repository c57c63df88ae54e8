"""The answer of the health and ready checks (wire-v1 §2.1)."""

from msgspec import Struct


class Health(Struct, frozen=True):
    version: str
    status: str
