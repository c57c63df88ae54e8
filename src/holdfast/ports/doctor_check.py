"""What an examination of the set-up found. Each adapter examines its own part and changes nothing."""

from enum import StrEnum

from msgspec import Struct


class Verdict(StrEnum):
    GOOD = "good"
    # Worth knowing; nothing has to be done.
    NOTE = "note"
    # The server would not start, or not do what it was told to.
    PROBLEM = "problem"


class Check(Struct, frozen=True):
    """``words`` is a sentence that says what is the case and, if something is wrong, what to do."""

    verdict: Verdict
    subject: str
    message: str
