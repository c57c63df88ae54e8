"""``holdfast doctor``: what the examination found, for people to read."""

import asyncio
import textwrap
from collections.abc import Mapping, Sequence
from typing import Final

from holdfast.assembly import run_doctor_checks
from holdfast.config import Settings, find_unknown_variables
from holdfast.ports.doctor_check import Check, Verdict

WIDTH: Final = 110

_MARKS: Final = {Verdict.GOOD: "ok", Verdict.NOTE: "note", Verdict.PROBLEM: "WRONG"}
_MARK_WIDTH: Final = max(map(len, _MARKS.values())) + 2


def run_checks(
    environ: Mapping[str, str], options: Mapping[str, object], *, check_providers: bool
) -> list[Check]:
    """The settings first; with bad ones nothing else can be examined."""
    unknown = find_unknown_variables(environ)
    notes = [
        Check(Verdict.NOTE, "settings", f"{name} is set, but there is no such setting.")
        for name in unknown
    ]
    if problems := Settings.find_problems(environ, **options):
        return [*notes, *(Check(Verdict.PROBLEM, "settings", words) for words in problems)]
    settings = Settings.read(environ, **options)
    good = Check(Verdict.GOOD, "settings", "All can be used.")
    return [
        *notes,
        good,
        *asyncio.run(run_doctor_checks(settings, check_providers=check_providers)),
    ]


def render_report(found: Sequence[Check]) -> str:
    subjects = max(len(finding.subject) for finding in found) + 2
    lines = [_render_check(finding, subjects) for finding in found]
    wrong = sum(finding.verdict is Verdict.PROBLEM for finding in found)
    match wrong:
        case 0:
            end = "Nothing is wrong."
        case 1:
            end = "One thing is wrong."
        case _:
            end = f"{wrong} things are wrong."
    return "\n".join([*lines, "", end])


def exit_code(found: Sequence[Check]) -> int:
    return int(any(finding.verdict is Verdict.PROBLEM for finding in found))


def _render_check(finding: Check, subjects: int) -> str:
    mark = _MARKS[finding.verdict].ljust(_MARK_WIDTH)
    begin = f"{mark}{finding.subject.ljust(subjects)}"
    return textwrap.fill(
        finding.message,
        WIDTH,
        initial_indent=begin,
        subsequent_indent=" " * len(begin),
        break_long_words=False,
        break_on_hyphens=False,
    )
