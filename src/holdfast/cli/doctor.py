"""``holdfast doctor``: runs the checks and renders their results for people."""

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
    """Check the settings first; if they are invalid, nothing else can be checked."""
    unknown = find_unknown_variables(environ)
    notes = [
        Check(Verdict.NOTE, "settings", f"{name} is set, but there is no such setting.")
        for name in unknown
    ]
    if problems := Settings.find_problems(environ, **options):
        return [*notes, *(Check(Verdict.PROBLEM, "settings", problem) for problem in problems)]
    settings = Settings.read(environ, **options)
    good = Check(Verdict.GOOD, "settings", "All can be used.")
    return [
        *notes,
        good,
        *asyncio.run(run_doctor_checks(settings, check_providers=check_providers)),
    ]


def render_report(checks: Sequence[Check]) -> str:
    subject_width = max(len(check.subject) for check in checks) + 2
    lines = [_render_check(check, subject_width) for check in checks]
    wrong = sum(check.verdict is Verdict.PROBLEM for check in checks)
    match wrong:
        case 0:
            summary = "Nothing is wrong."
        case 1:
            summary = "One thing is wrong."
        case _:
            summary = f"{wrong} things are wrong."
    return "\n".join([*lines, "", summary])


def exit_code(checks: Sequence[Check]) -> int:
    return int(any(check.verdict is Verdict.PROBLEM for check in checks))


def _render_check(check: Check, subject_width: int) -> str:
    mark = _MARKS[check.verdict].ljust(_MARK_WIDTH)
    prefix = f"{mark}{check.subject.ljust(subject_width)}"
    return textwrap.fill(
        check.message,
        WIDTH,
        initial_indent=prefix,
        subsequent_indent=" " * len(prefix),
        break_long_words=False,
        break_on_hyphens=False,
    )
