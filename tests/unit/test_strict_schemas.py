"""Schemas in which everything is required, and the nulls that stand for what a model leaves out."""

from typing import Any

import pytest

from holdfast.core.strict_schemas import allows_strict, drop_nulls, require_all


def make_object(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


TEXT = {"type": "string"}


def test_every_property_is_required_and_no_other_is_allowed() -> None:
    made = require_all(make_object(("city",), city=TEXT, days={"type": "integer"}))
    assert made["required"] == ["city", "days"]
    assert made["additionalProperties"] is False


def test_what_was_optional_may_be_null() -> None:
    made = require_all(
        make_object(
            ("city",),
            city=TEXT,
            days={"type": "integer", "description": "How many."},
            unit={"type": "string", "enum": ["C", "F"]},
            kind={"const": "now"},
            where=make_object(("x",), x=TEXT),
            either={"anyOf": [TEXT, {"type": "integer"}]},
            reference={"$ref": "#/$defs/Place"},
        )
    )["properties"]
    assert made["city"] == TEXT
    assert made["days"] == {"type": ["integer", "null"], "description": "How many."}
    assert made["unit"] == {"type": ["string", "null"], "enum": ["C", "F", None]}
    assert made["kind"] == {"anyOf": [{"const": "now"}, {"type": "null"}]}
    assert made["where"]["anyOf"][1] == {"type": "null"}
    assert made["either"]["anyOf"][2] == {"type": "null"}
    assert made["reference"] == {"anyOf": [{"$ref": "#/$defs/Place"}, {"type": "null"}]}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": ["string", "null"]},
        {"anyOf": [TEXT, {"type": "null"}]},
        {"enum": ["a", None]},
        {},
        {"description": "Anything."},
    ],
)
def test_what_may_be_null_already_stays_as_it_is(schema: dict[str, Any]) -> None:
    assert require_all(make_object(value=schema))["properties"]["value"] == schema


def test_objects_within_are_strict_too() -> None:
    inner = make_object(("a",), a=TEXT, b=TEXT)
    made = require_all(
        {
            **make_object(
                ("here", "list", "either"),
                here=inner,
                list={"type": "array", "items": inner},
                either={"anyOf": [inner, TEXT]},
            ),
            "$defs": {"Inner": inner},
        }
    )
    properties = made["properties"]
    found = (
        properties["here"],
        properties["list"]["items"],
        properties["either"]["anyOf"][0],
        made["$defs"]["Inner"],
    )
    for item in found:
        assert item["required"] == ["a", "b"]
        assert item["additionalProperties"] is False
        assert item["properties"]["b"] == {"type": ["string", "null"]}


def test_the_given_schema_is_not_changed() -> None:
    schema = make_object(days={"type": "integer"})
    require_all(schema)
    assert schema == make_object(days={"type": "integer"})


def test_nulls_of_optional_properties_are_no_arguments() -> None:
    schema = make_object(("city", "note"), city=TEXT, note=TEXT, days={"type": "integer"})
    given = {"city": "Rome", "note": None, "days": None}
    # The server says itself what it thinks of a required one that is null.
    assert drop_nulls(given, schema) == {"city": "Rome", "note": None}


def test_nulls_that_the_tool_allows_stay() -> None:
    schema = make_object(days={"type": ["integer", "null"]}, free={})
    assert drop_nulls({"days": None, "free": None, "new": None}, schema) == {
        "days": None,
        "free": None,
        "new": None,
    }


def test_nulls_are_dropped_within_objects_and_lists() -> None:
    inner = make_object(("a",), a=TEXT, b=TEXT)
    schema = {
        **make_object(
            here=inner,
            list={"type": "array", "items": inner},
            either={"anyOf": [inner, TEXT]},
            named={"$ref": "#/$defs/Inner"},
        ),
        "$defs": {"Inner": inner},
    }
    value = {"a": "1", "b": None}
    given = {"here": value, "list": [value, value], "either": value, "named": value}
    assert drop_nulls(given, schema) == {
        "here": {"a": "1"},
        "list": [{"a": "1"}, {"a": "1"}],
        "either": {"a": "1"},
        "named": {"a": "1"},
    }


def test_a_definition_that_refers_to_itself_ends() -> None:
    node = make_object(("value",), value=TEXT, next={"$ref": "#/$defs/Node"})
    schema = {**make_object(root={"$ref": "#/$defs/Node"}), "$defs": {"Node": node}}
    given = {"root": {"value": "1", "next": {"value": "2", "next": None}}}
    assert drop_nulls(given, schema) == {"root": {"value": "1", "next": {"value": "2"}}}
    loop = {"$defs": {"A": {"$ref": "#/$defs/A"}}, **make_object(a={"$ref": "#/$defs/A"})}
    assert drop_nulls({"a": None}, loop) == {}
    assert require_all(loop)["required"] == ["a"]


def test_only_a_schema_that_cannot_be_strict_says_so() -> None:
    assert allows_strict({"name": "roll"})
    assert allows_strict({"mcp:SCHEMA_STATUS": "STRICT_COMPLIANT"})
    assert not allows_strict({"mcp:SCHEMA_STATUS": "NON_STRICT_ONLY"})
