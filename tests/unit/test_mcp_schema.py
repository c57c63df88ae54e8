"""Schemas of tools that MCP servers list: how they are stored, and whether models accept them (tools-v1 §1.5)."""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.core.mcp_schema import check_schema
from holdfast.core.mcp_schema_health import MAX_REASONS, SchemaHealth
from holdfast.core.tool_source.schema import bounds_fault

STRICT = SchemaHealth.STRICT_COMPLIANT
NON_STRICT = SchemaHealth.NON_STRICT_ONLY
INVALID = SchemaHealth.INVALID

STRING = {"type": "string"}


def with_properties(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def normalised(schema: dict[str, Any]) -> dict[str, Any]:
    return check_schema(schema).parameters


def test_what_is_missing_is_added() -> None:
    empty = {"type": "object", "properties": {}, "additionalProperties": False, "required": []}

    assert normalised({}) == empty
    assert normalised({"properties": {"a": STRING}, "required": ["a"]}) == empty | {
        "properties": {"a": STRING},
        "required": ["a"],
    }


def test_objects_are_closed_wherever_they_are() -> None:
    inner = with_properties(x=STRING)
    closed = inner | {"additionalProperties": False}
    schema = with_properties(
        a=inner, b={"type": "array", "items": inner}, c={"anyOf": [inner, {"type": "null"}]}
    ) | {"$defs": {"D": inner}}

    made = normalised(schema)

    assert made["properties"]["a"] == closed
    assert made["properties"]["b"]["items"] == closed
    assert made["properties"]["c"]["anyOf"][0] == closed
    assert made["$defs"]["D"] == closed


def test_what_the_server_says_of_other_properties_stays() -> None:
    assert normalised({"additionalProperties": True})["additionalProperties"] is True
    nested = with_properties(a={"type": "object", "additionalProperties": STRING})
    assert normalised(nested)["properties"]["a"]["additionalProperties"] == STRING


@pytest.mark.parametrize("key", ["$defs", "definitions"])
def test_references_are_replaced_by_what_they_refer_to(key: str) -> None:
    city = {"type": "string", "description": "A city."}
    schema = with_properties(
        a={"$ref": f"#/{key}/City", "description": "Where from."},
        b={"type": "array", "items": {"$ref": f"#/{key}/City"}},
    ) | {key: {"City": city}}

    made = normalised(schema)

    assert made["properties"]["a"] == {"type": "string", "description": "Where from."}
    assert made["properties"]["b"]["items"] == city
    assert made[key] == {"City": city}
    assert check_schema(schema).health is STRICT


def test_a_reference_to_nothing_is_an_object() -> None:
    made = normalised(with_properties(a={"$ref": "#/$defs/None"}, b={"$ref": "https://x.example"}))

    assert made["properties"]["a"]["type"] == made["properties"]["b"]["type"] == "object"


def test_a_recursive_reference_stays() -> None:
    node = with_properties(next={"$ref": "#/$defs/Node"}, value=STRING)
    checked = check_schema(
        with_properties(first={"$ref": "#/$defs/Node"}) | {"$defs": {"Node": node}}
    )

    first = checked.parameters["properties"]["first"]
    assert first["properties"]["next"] == {"type": "object", "$ref": "#/$defs/Node"}
    assert checked.health is NON_STRICT


def test_references_that_grow_are_not_replaced() -> None:
    """Ten definitions that name the next one ten times: ten thousand million copies."""
    definitions = {
        f"D{number}": with_properties(
            **{f"p{i}": {"$ref": f"#/$defs/D{number + 1}"} for i in range(10)}
        )
        for number in range(10)
    } | {"D10": STRING}
    schema = with_properties(a={"$ref": "#/$defs/D0"}) | {"$defs": definitions}

    checked = check_schema(schema)

    assert bounds_fault(checked.parameters) is None
    assert checked.parameters["properties"]["a"]["$ref"] == "#/$defs/D0"


def test_one_option_stays_of_each_simple_type() -> None:
    options = [
        STRING,
        {"type": "string", "format": "date"},
        {"type": "string", "minLength": 1, "maxLength": 2},
        {"type": "integer"},
        {"type": "integer", "minimum": 1},
        with_properties(a=STRING),
        with_properties(b=STRING),
        with_properties(b=STRING),
    ]

    made = normalised(with_properties(x={"anyOf": options}))["properties"]["x"]["anyOf"]

    closed = {"additionalProperties": False}
    assert made == [
        {"type": "string", "format": "date"},
        {"type": "integer", "minimum": 1},
        with_properties(a=STRING) | closed,
        with_properties(b=STRING) | closed,
    ]


@pytest.mark.tools(7)
def test_the_parameter_that_v1_once_added_is_not_stored() -> None:
    schema = with_properties(request_heartbeat={"type": "boolean"}, a=STRING)
    made = normalised(schema | {"required": ["request_heartbeat", "a"]})

    assert made["properties"] == {"a": STRING}
    assert made["required"] == ["a"]


@pytest.mark.tools(8)
@pytest.mark.parametrize(
    ("schema", "health", "reasons"),
    [
        ({}, STRICT, []),
        (with_properties(a=STRING), STRICT, []),
        (with_properties(a={"type": ["string", "null"]}), STRICT, []),
        ("no schema", INVALID, ["Top-level schema must be a dict"]),
        (
            {"type": "string"},
            INVALID,
            ["Top-level schema 'type' must be 'object' for OpenAI tools"],
        ),
        (
            with_properties(a={"description": "Anything."}),
            INVALID,
            ["root.properties.a: Missing 'type'"],
        ),
        (
            {"type": "object", "properties": []},
            INVALID,
            ["root: 'properties' must be a dict for objects"],
        ),
        ({"required": "a"}, INVALID, ["root: 'required' must be a list if present"]),
        ({"required": ["a"]}, INVALID, ["root: required contains 'a' not found in properties"]),
        (
            with_properties(a=with_properties()) | {"required": ["a"]},
            INVALID,
            ["root: required property 'a' allows empty object (OpenAI will reject)"],
        ),
        (
            with_properties(a={"type": "array"}) | {"required": ["a"]},
            INVALID,
            [
                "root: required property 'a' allows empty array (OpenAI will reject)",
                "root.properties.a: 'items' must be defined for arrays in strict mode",
            ],
        ),
        (
            with_properties(a={"type": "array", "items": [STRING]}),
            INVALID,
            ["root.properties.a: 'items' must be a schema dict for arrays"],
        ),
        (
            with_properties(a={"type": ["string", "text"]}),
            INVALID,
            ["root.properties.a: Invalid type 'text' in type array"],
        ),
        (
            with_properties(a={"anyOf": {}}),
            INVALID,
            ["root.properties.a: 'anyOf' must be a list"],
        ),
        (
            with_properties(a={"anyOf": [True]}),
            INVALID,
            ["root.properties.a.anyOf[0]: Not a valid schema dict"],
        ),
        (
            with_properties(a={"type": "object"}),
            NON_STRICT,
            ["root.properties.a: 'additionalProperties' not explicitly set"],
        ),
        (
            with_properties(a={"type": ["object", "null"], "additionalProperties": STRING}),
            NON_STRICT,
            [
                "root.properties.a: 'additionalProperties' is not false (free-form object)",
            ],
        ),
        (with_properties(a={"type": ["object", "null"], "properties": {"b": STRING}}), STRICT, []),
        (
            with_properties(a={"type": ["array", "null"], "items": {"type": "object"}}),
            NON_STRICT,
            ["root.properties.a.items: 'additionalProperties' not explicitly set"],
        ),
        (
            with_properties(a={"type": ["array", "null"]}) | {"required": ["a"]},
            INVALID,
            [
                "root: required property 'a' allows empty array (OpenAI will reject)",
                "root.properties.a: 'items' must be defined for arrays in strict mode",
            ],
        ),
        (
            with_properties(
                a={"type": "array", "items": {"type": "object", "additionalProperties": {}}}
            ),
            NON_STRICT,
            [
                "root.properties.a.items: 'additionalProperties' is not false (free-form object)",
            ],
        ),
    ],
)
def test_the_health_says_what_models_accept_and_why(
    schema: object, health: SchemaHealth, reasons: list[str]
) -> None:
    checked = check_schema(schema)

    assert (checked.health, list(checked.reasons)) == (health, reasons)


def deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = STRING
    for _ in range(levels):
        schema = with_properties(a=schema)
    return schema


@pytest.mark.parametrize(
    "schema",
    [
        deep(100),
        deep(5_000),
        with_properties(**{f"p{number}": STRING for number in range(20_000)}),
        with_properties(a={"type": "string", "description": "x" * 1_000_000}),
        with_properties(a={"type": "string", "description": "\ud800"}),
        with_properties(a={"type": "number", "maximum": float("nan")}),
        with_properties(a={"type": "number", "maximum": 10**30}),
    ],
)
def test_a_schema_that_cannot_be_stored_is_invalid(schema: dict[str, Any]) -> None:
    checked = check_schema(schema)

    assert checked.health is INVALID
    assert checked.parameters == {}
    assert checked.reasons[0].startswith("Top-level schema cannot be stored: ")


def test_not_every_reason_is_kept() -> None:
    checked = check_schema(with_properties(**{f"p{number}": {} for number in range(1_000)}))

    assert len(checked.reasons) == MAX_REASONS


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.sampled_from(["object", "array", "string", "a", "#/$defs/a"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "type",
                    "properties",
                    "items",
                    "anyOf",
                    "oneOf",
                    "$ref",
                    "$defs",
                    "required",
                    "additionalProperties",
                    "a",
                ]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=30,
)


@given(JSON)
@example({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}})
@example({"properties": {"a": {"$ref": ["#/$defs/a"]}}})
@example({"properties": {"a": {"type": {}}}, "required": [[]]})
def test_every_schema_can_be_checked(schema: object) -> None:
    checked = check_schema(schema)

    assert bounds_fault(checked.parameters) is None
    json.dumps(checked.parameters)
    assert (checked.health is STRICT) == (not checked.reasons)
    # It is stored in a form that is judged the same, and stays as it is when it is read in again.
    again = check_schema(checked.parameters) if checked.parameters else checked
    assert (again.parameters, again.health) == (checked.parameters, checked.health)
