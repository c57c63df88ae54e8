"""The result of one check of ``holdfast doctor``. Each adapter checks its own part and changes nothing."""

from enum import StrEnum

from msgspec import Struct


class Verdict(StrEnum):
    GOOD = "good"
    # Worth knowing; nothing has to be done.
    NOTE = "note"
    # The server would not start, or would not do what its settings say.
    PROBLEM = "problem"


class Check(Struct, frozen=True):
    """``message`` is a sentence that says what was found and, if something is wrong, what to do."""

    verdict: Verdict
    subject: str
    message: str
