"""How deep a value of JSON is nested."""

import json

import pytest

from holdfast.core.json_depth import MAX_DEPTH, is_too_deep, load_json


@pytest.mark.parametrize("value", [None, "[[", 7, [], {}, {"a": [{"b": 1}]}])
def test_ordinary_values_are_not_too_deep(value: object) -> None:
    assert not is_too_deep(value)


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_levels_of_lists_and_objects_count(opening: str, closing: str) -> None:
    value = json.loads(opening * MAX_DEPTH + "1" + closing * MAX_DEPTH)
    assert not is_too_deep(value)
    assert is_too_deep([value])


def test_a_list_in_itself_is_too_deep() -> None:
    endless: list[object] = []
    endless.append(endless)
    assert is_too_deep(endless)


@pytest.mark.parametrize("levels", [MAX_DEPTH + 1, 100_000])
def test_text_that_is_nested_too_deeply_is_no_json(levels: int) -> None:
    assert load_json("[" * MAX_DEPTH + "]" * MAX_DEPTH)
    with pytest.raises(ValueError, match="nested deeper than 100 levels"):
        load_json("[" * levels + "]" * levels)
