"""How an agent's tools edit a block's value (wire-v1 §7.3)."""

import difflib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.block_edits import apply_patch, label_from_path
from holdfast.errors import ToolError

lines = st.lists(st.sampled_from(["a", "b", "-c", "+d", " e", ""]), min_size=1, max_size=12)


@given(lines, lines)
def test_a_diff_of_two_texts_leads_from_the_one_to_the_other(
    old: list[str], new: list[str]
) -> None:
    # With all lines as context the hunk matches the whole text, which occurs exactly once.
    numbered = [f"{at}{line}" for at, line in enumerate(old)]
    changed = [line for line in numbered if line[1:] in new] + new
    patch = "\n".join(list(difflib.unified_diff(numbered, changed, lineterm="", n=99))[2:])

    if numbered == changed:
        return
    assert apply_patch("\n".join(numbered), patch) == "\n".join(changed)


@pytest.mark.parametrize(
    ("value", "patch", "after"),
    [
        ("", "+new", "new"),
        ("old", "+new", "old\nnew"),
        ("a\nb\nc", "-b", "a\nc"),
        ("a\nb\nc", " a\n-b\n+B\n c", "a\nB\nc"),
        ("a\n\nb", " a\n\n-b", "a\n"),
        ("a\nb", "--- x\n+++ y\n@@ -1,2 +1,2 @@\n-a\n+A\n b", "A\nb"),
    ],
)
def test_a_patch_is_applied(value: str, patch: str, after: str) -> None:
    assert apply_patch(value, patch) == after


@pytest.mark.parametrize(
    ("patch", "says"),
    [
        ("-missing", "not 0 times"),
        ("-twice", "not 2 times"),
        (" twice", "changes nothing"),
        ("", "changes nothing"),
        ("*** Begin", "starts with"),
    ],
)
def test_a_patch_that_does_not_fit_is_refused(patch: str, says: str) -> None:
    with pytest.raises(ToolError, match=says):
        apply_patch("twice\ntwice", patch)


def test_a_path_names_a_block() -> None:
    assert label_from_path("/memories/plan/today") == "plan/today"
    assert label_from_path("human") == "human"
    for wrong in ("/memories/", "", "a b", "x" * 51, "../etc"):
        with pytest.raises(ToolError):
            label_from_path(wrong)
