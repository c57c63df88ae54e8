"""Deriving schemas from Python source (wire-v1 §2.5): what is accepted, and what is refused with which error."""

import ast
import gc
import json
from typing import Any

import pytest

from holdfast.core.tool_source import (
    MAX_NAME_CHARS,
    MAX_SCHEMA_CHARS,
    MAX_SCHEMA_DEPTH,
    MAX_SCHEMA_NODES,
    MAX_SOURCE_CHARS,
    check_json_schema,
    check_parameters,
    derive_schema,
    with_parameters,
)
from holdfast.core.tool_source.parsing import parse
from holdfast.errors import ToolSourceInvalid

ROLL_DICE = '''
import random

def roll_dice_tool(num_sides: int) -> str:
    """
    A tool that returns a random number between 1 and num_sides.
    Args:
        num_sides (int): The number of sides on the die.
    Returns:
        str: The random number.
    """
    return str(random.randint(1, num_sides))
'''

CLASSES = '''
from __future__ import annotations
from dataclasses import dataclass, field
from enum import Enum, IntEnum, StrEnum, auto
from typing import Annotated, ClassVar, List as ListOf, Literal, NotRequired, Optional, Required, TypedDict
import typing as t
from pydantic import BaseModel, Field

class Color(str, Enum):
    """A color."""
    RED = "red"
    BLUE = "blue"

class Level(IntEnum):
    LOW = auto()
    HIGH = auto()

class Mood(StrEnum):
    GOOD = auto()
    BAD = "awful"

class Item(BaseModel):
    """Something to buy."""
    model_config = {}
    kind: ClassVar[str] = "item"
    name: str = Field(..., description="Its name.")
    count: int = Field(default=1, description="How many.", ge=1, le=10)
    tags: list[str] = Field(default_factory=list)
    note: Optional[str] = None
    owner: Optional[str]
    wire: int = Field(0, alias="wireName")
    _hidden: int = 3

class Special(Item):
    level: Level

@dataclass
class Point:
    """A point.

    Attributes:
        x: To the right.
    """
    x: float
    y: float = 0.0
    marks: list[int] = field(default_factory=list)

class Movie(TypedDict):
    title: str
    year: NotRequired[int]

class Patch(TypedDict, total=False):
    id: Required[str]
    text: str

class Node(BaseModel):
    value: int
    children: list[Node] = []

class Ping(BaseModel):
    pong: Optional[Pong] = None

class Pong(BaseModel):
    ping: Optional[Ping] = None

class Plain:
    pass

class Loop(Loop):
    x: int

class Computed(Enum):
    A = len("abc")

Alias = Literal["a", "b"]
Again = Alias
Endless = Endless
NotAType = 5
'''

STRING: dict[str, Any] = {"type": "string"}
INTEGER: dict[str, Any] = {"type": "integer"}
ITEM = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "description": "Its name."},
        "count": {
            "type": "integer",
            "description": "How many.",
            "minimum": 1,
            "maximum": 10,
            "default": 1,
        },
        "tags": {"type": "array", "items": STRING},
        "note": STRING,
        "owner": {"anyOf": [STRING, {"type": "null"}]},
        "wireName": {"type": "integer", "default": 0},
    },
    "required": ["name", "owner"],
}


def source(parameters: str, before: str = CLASSES) -> str:
    return f'{before}\ndef tool({parameters}):\n    """Does it.\n\n    Args:\n        x: The x.\n    """\n'


def parameters_of(parameters: str) -> dict[str, Any]:
    return derive_schema(source(parameters)).parameters


def refusal(text: str) -> str:
    with pytest.raises(ToolSourceInvalid) as refused:
        derive_schema(text)
    message = str(refused.value)
    assert message.startswith("Failed to derive json schema: ")
    return message


def test_the_schema_has_the_flat_form_of_the_wire() -> None:
    assert derive_schema(ROLL_DICE).as_json_schema() == {
        "name": "roll_dice_tool",
        "description": "A tool that returns a random number between 1 and num_sides.",
        "parameters": {
            "type": "object",
            "properties": {
                "num_sides": {"type": "integer", "description": "The number of sides on the die."}
            },
            "required": ["num_sides"],
        },
    }


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        ("str", STRING),
        ("int", INTEGER),
        ("float", {"type": "number"}),
        ("bool", {"type": "boolean"}),
        ("Any", {}),
        ("t.Any", {}),
        ("object", {}),
        ("list", {"type": "array", "items": {}}),
        ("list[int]", {"type": "array", "items": INTEGER}),
        ("List[List[str]]", {"type": "array", "items": {"type": "array", "items": STRING}}),
        ("ListOf[int]", {"type": "array", "items": INTEGER}),
        ("typing.List[int]", {"type": "array", "items": INTEGER}),
        ("set[int]", {"type": "array", "items": INTEGER}),
        ("Sequence[str]", {"type": "array", "items": STRING}),
        ("list[int | None]", {"type": "array", "items": {"anyOf": [INTEGER, {"type": "null"}]}}),
        ("tuple[int, str]", {"type": "array", "prefixItems": [INTEGER, STRING]}),
        ("Tuple[int, ...]", {"type": "array", "items": INTEGER}),
        ("dict", {"type": "object"}),
        ("Dict[str, int]", {"type": "object", "additionalProperties": INTEGER}),
        ("Literal['a', 'b']", {"type": "string", "enum": ["a", "b"]}),
        ("Literal[1, -2]", {"type": "integer", "enum": [1, -2]}),
        ("Literal['a', 1]", {"enum": ["a", 1]}),
        ("int | str", {"anyOf": [INTEGER, STRING]}),
        ("Union[int, str, int]", {"anyOf": [INTEGER, STRING]}),
        ("Union[int, Union[str, bool]]", {"anyOf": [INTEGER, STRING, {"type": "boolean"}]}),
        ("datetime", {"type": "string", "format": "date-time"}),
        ("datetime.date", {"type": "string", "format": "date"}),
        ("uuid.UUID", {"type": "string", "format": "uuid"}),
        ("'int'", INTEGER),
        ("list['int']", {"type": "array", "items": INTEGER}),
        ("Alias", {"type": "string", "enum": ["a", "b"]}),
        ("Again", {"type": "string", "enum": ["a", "b"]}),
        ("Color", {"type": "string", "enum": ["red", "blue"]}),
        ("Level", {"type": "integer", "enum": [1, 2]}),
        ("Mood", {"type": "string", "enum": ["good", "awful"]}),
        (
            "Annotated[int, Field(gt=0, lt=9)]",
            {**INTEGER, "exclusiveMinimum": 0, "exclusiveMaximum": 9},
        ),
        ("Item", ITEM),
        (
            "Special",
            {
                **ITEM,
                "properties": {**ITEM["properties"], "level": {"type": "integer", "enum": [1, 2]}},  # type: ignore[dict-item]  # ITEM is a literal of mixed values
                "required": [*ITEM["required"], "level"],
            },
        ),
        (
            "Point",
            {
                "type": "object",
                "properties": {
                    "x": {"type": "number", "description": "To the right."},
                    "y": {"type": "number", "default": 0.0},
                    "marks": {"type": "array", "items": INTEGER},
                },
                "required": ["x"],
            },
        ),
        (
            "Movie",
            {
                "type": "object",
                "properties": {"title": STRING, "year": INTEGER},
                "required": ["title"],
            },
        ),
        (
            "Patch",
            {"type": "object", "properties": {"id": STRING, "text": STRING}, "required": ["id"]},
        ),
    ],
)
def test_an_annotation_becomes_json_schema(annotation: str, expected: dict[str, Any]) -> None:
    assert parameters_of(f"x: {annotation}") == {
        "type": "object",
        "properties": {"x": {**expected, "description": "The x."}},
        "required": ["x"],
    }


@pytest.mark.parametrize(
    ("parameter", "expected"),
    [
        ("x: int = 5", {**INTEGER, "default": 5}),
        ("x: int = -5", {**INTEGER, "default": -5}),
        ("x: bool = False", {"type": "boolean", "default": False}),
        ("x: list[int] = [1, 2]", {"type": "array", "items": INTEGER, "default": [1, 2]}),
        ("x: tuple[int, ...] = (1,)", {"type": "array", "items": INTEGER, "default": [1]}),
        ("x: dict = {'a': 1}", {"type": "object", "default": {"a": 1}}),
        ("*, x: str = ''", {**STRING, "default": ""}),
        ("x: str = None", STRING),
        ("x: str = os.getcwd()", STRING),
        ("x: float = 1e999", {"type": "number"}),
        ("x: int = 0xfffffffffffffffffff", INTEGER),
        ("x: Color = Color.RED", {"type": "string", "enum": ["red", "blue"]}),
        ("x: Optional[int]", INTEGER),
        ("x: int | None", INTEGER),
        ("x: None | int | str", {"anyOf": [INTEGER, STRING]}),
        ("x: Union[int, None] = 3", {**INTEGER, "default": 3}),
        ("x: Annotated[Optional[int], 'unused']", INTEGER),
    ],
)
def test_a_default_or_an_optional_type_makes_a_parameter_optional(
    parameter: str, expected: dict[str, Any]
) -> None:
    assert parameters_of(parameter) == {
        "type": "object",
        "properties": {"x": {**expected, "description": "The x."}},
        "required": [],
    }


def test_a_recursive_model_is_a_definition() -> None:
    assert parameters_of("x: Node") == {
        "type": "object",
        "properties": {"x": {"$ref": "#/$defs/Node", "description": "The x."}},
        "required": ["x"],
        "$defs": {
            "Node": {
                "type": "object",
                "properties": {
                    "value": INTEGER,
                    "children": {
                        "type": "array",
                        "items": {"$ref": "#/$defs/Node"},
                        "default": [],
                    },
                },
                "required": ["value"],
            }
        },
    }


def test_mutually_recursive_models_end() -> None:
    definitions = parameters_of("x: Ping")["$defs"]
    assert definitions["Ping"]["properties"]["pong"]["properties"] == {
        "ping": {"$ref": "#/$defs/Ping"}
    }


def test_only_defaults_of_their_own_reach_positional_parameters() -> None:
    schema = derive_schema(
        'def f(a: int, b: int = 2, /, c: int = 3, *, d: int, e: int = 5):\n    """F.\n\n    Args:\n'
        + "".join(f"        {name}: {name}\n" for name in "abcde")
        + '    """'
    ).parameters
    assert schema["required"] == ["a", "d"]
    assert {name: found.get("default") for name, found in schema["properties"].items()} == {
        "a": None,
        "b": 2,
        "c": 3,
        "d": None,
        "e": 5,
    }


def test_the_last_function_at_the_top_level_is_the_tool() -> None:
    text = 'def first():\n    """First."""\n\nasync def second():\n    """Second."""\n    def inner(): ...\n\nclass C:\n    def method(self): ...\n'
    assert derive_schema(text).name == "second"


def test_self_and_agent_state_are_not_parameters() -> None:
    assert parameters_of("self, agent_state, x: int")["required"] == ["x"]
    assert derive_schema('def f(agent_state: "AgentState"):\n    """F."""').parameters == {
        "type": "object",
        "properties": {},
        "required": [],
    }


@pytest.mark.parametrize(
    "docstring",
    [
        "Adds.\n\n    Carefully.\n\n    Args:\n        a (int): One.\n        b: Two.\n\n    Returns:\n        int: The sum.\n    ",
        "Adds.\n\n    Carefully.\n\n    Parameters\n    ----------\n    a : int\n        One.\n    b : int\n        Two.\n    ",
        "Adds.\n\n    Carefully.\n\n    :param a: One.\n    :param int b: Two.\n    :returns: The sum.\n    ",
    ],
    ids=["google", "numpy", "sphinx"],
)
def test_the_three_docstring_styles_say_the_same(docstring: str) -> None:
    schema = derive_schema(f'def add(a: int, b: int):\n    """{docstring}"""')
    assert schema.description == "Adds.\n\nCarefully."
    assert {
        name: found["description"] for name, found in schema.parameters["properties"].items()
    } == {
        "a": "One.",
        "b": "Two.",
    }


def test_examples_end_the_description() -> None:
    schema = derive_schema(
        'def f():\n    """Does.\n\n    Examples:\n        f()\n        f()\n    """'
    )
    assert schema.description == "Does.\n\nExamples:\n    f()\n    f()"


@pytest.mark.parametrize(
    "annotation",
    [
        "Annotated[int, 'Told.']",
        "Annotated[int, Field(description='Told.')]",
        "Annotated[int, Doc('Told.')]",
    ],
)
def test_an_annotated_type_may_carry_the_description(annotation: str) -> None:
    schema = derive_schema(f'def f(y: {annotation}):\n    """F."""')
    assert schema.parameters["properties"]["y"] == {"type": "integer", "description": "Told."}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no function"),
        ("x = 1", "no function"),
        ("def f(:\n", "line 1: "),
        ('"""ok"""\ndef f()\n    pass', "line 2: expected ':': 'def f()'"),
        ("def f(): pass", "'f' (line 1) has no docstring"),
        ('def f():\n    """  """', "no docstring"),
        (source("x"), "parameter 'x' (line "),
        (source("x"), "has no type"),
        (source("y: int"), "needs a type annotation and an `Args:` description"),
        (source("*x: int"), "parameter '*x'"),
        (source("**x: int"), "parameter '**x'"),
        (source("x: Plain"), "no BaseModel, dataclass, TypedDict or Enum"),
        (source("x: Loop"), "no BaseModel, dataclass, TypedDict or Enum"),
        (source("x: Missing"), "the type 'Missing'"),
        (source("x: bytes"), "the type 'bytes'"),
        (source("x: Callable[[int], int]"), "the type 'Callable[[int], int]'"),
        (source("x: NotAType"), "the type '5'"),
        (source("x: Endless"), f"deeper than {MAX_SCHEMA_DEPTH}"),
        (source("x: int()"), "the type 'int()'"),
        (source("x: list[()]"), "the type 'list[()]'"),
        (source("x: 'not a type'"), "the annotation 'not a type'"),
        (source("x: Computed"), "the Enum 'Computed'"),
        (source("x: Literal[len]"), "the Literal of parameter 'x'"),
        (f'def {"n" * (MAX_NAME_CHARS + 1)}():\n    """F."""', f"more than {MAX_NAME_CHARS}"),
        ('def größe():\n    """F."""', "ASCII"),
    ],
)
def test_a_source_that_says_too_little_is_refused_with_the_reason(text: str, words: str) -> None:
    assert words in refusal(text)


def doubling_aliases() -> str:
    lines = ["A0 = int", *(f"A{n} = tuple[A{n - 1}, A{n - 1}]" for n in range(1, 30))]
    return source("x: A29", "\n".join(lines))


def doubling_classes() -> str:
    lines = ["class C0(BaseModel):\n    a: int"]
    lines += [f"class C{n}(BaseModel):\n    a: C{n - 1}\n    b: C{n - 1}" for n in range(1, 30)]
    return source("x: C29", "\n".join(lines))


def repeated_description() -> str:
    described = f'class C(BaseModel):\n    """{"d" * 50_000}"""\n    a: int'
    return source(f"x: tuple[{'C,' * 100}]", described)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("x = 1\n" * MAX_SOURCE_CHARS, id="too long"),
        pytest.param("def f():\0 pass", id="NUL"),
        pytest.param("x = '\ud800'", id="lone surrogate in the source"),
        pytest.param('def f():\n    """Does \\0."""', id="NUL in the docstring"),
        pytest.param('def f():\n    """Does \\ud800."""', id="lone surrogate in the docstring"),
        pytest.param("(" * 100_000, id="parentheses"),
        pytest.param("x = " + "-" * 300_000 + "1", id="signs"),
        pytest.param("x = a" + ".b" * 300_000, id="attributes"),
        pytest.param("x = " + "lambda: " * 100_000 + "1", id="lambdas"),
        pytest.param("x = " + "9" * 10_000, id="an integer too long to read"),
        pytest.param(source("x: " + "list[" * 60 + "int" + "]" * 60), id="deep type"),
        pytest.param(
            source("x: " + "|".join(["int"] * 900)).replace("int", "a" + ".b" * 900),
            id="deep names",
        ),
        pytest.param(source("x: '" + "-" * 100_000 + "1'"), id="deep string annotation"),
        pytest.param(
            source("x: Literal[" + "1," * (MAX_SCHEMA_NODES + 1) + "]"), id="long Literal"
        ),
        pytest.param(
            source("x: list = [" + "1," * (MAX_SCHEMA_NODES + 1) + "]"), id="long default"
        ),
        pytest.param(source("x: str = '" + "a" * (MAX_SCHEMA_CHARS + 1) + "'"), id="long text"),
        pytest.param(f'def f():\n    """{"d" * (MAX_SCHEMA_CHARS + 1)}"""', id="long docstring"),
        pytest.param(doubling_aliases(), id="doubling aliases"),
        pytest.param(doubling_classes(), id="doubling classes"),
        pytest.param(repeated_description(), id="a long description many times"),
    ],
)
def test_a_hostile_source_is_refused(text: str) -> None:
    refusal(text)


def test_nothing_in_the_source_is_executed() -> None:
    derive_schema("raise SystemExit\n" + source("x: int = 1 // 0"))


def test_supplied_parameters_take_the_place_of_the_signature() -> None:
    schema = with_parameters(
        'def f(anything, *args):\n    """Does it."""',
        {"type": "object", "properties": {"y": {"type": "string"}}, "required": ["y"]},
    )
    assert schema.as_json_schema() == {
        "name": "f",
        "description": "Does it.",
        "parameters": {
            "type": "object",
            "properties": {"y": {"type": "string"}},
            "required": ["y"],
        },
    }


def test_supplied_parameters_still_need_a_source_with_a_docstring() -> None:
    with pytest.raises(ToolSourceInvalid, match="no docstring"):
        with_parameters("def f(): pass", {"properties": {}})


def test_a_supplied_schema_is_completed() -> None:
    assert check_json_schema({"name": "f"}).as_json_schema() == {
        "name": "f",
        "description": "",
        "parameters": {"type": "object", "properties": {}, "required": []},
    }


def nested_schema(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(depth):
        schema = {"items": schema}
    return {"properties": {"x": schema}}


@pytest.mark.parametrize(
    "schema",
    [
        None,
        [],
        "object",
        {"type": "array"},
        {"properties": []},
        {"properties": {"x": "string"}},
        {"required": "x"},
        {"required": [1]},
        {"properties": {"x": {"default": float("nan")}}},
        {"properties": {"x": {"default": 2**70}}},
        {"properties": {"x\0": {}}},
        {"properties": {"x": {"description": "\ud800"}}},
        {"properties": {"x": {"default": object()}}},
        {"properties": {"x": {"description": "a" * (MAX_SCHEMA_CHARS + 1)}}},
        {"properties": {"x": {"enum": list(range(MAX_SCHEMA_NODES))}}},
        nested_schema(MAX_SCHEMA_DEPTH),
        nested_schema(100_000),
    ],
)
def test_a_supplied_schema_of_the_wrong_form_or_size_is_refused(schema: object) -> None:
    with pytest.raises(ToolSourceInvalid, match=r"^Invalid json schema: "):
        check_parameters(schema)
    with pytest.raises(ToolSourceInvalid, match=r"^Invalid json schema: "):
        check_json_schema({"name": "f", "parameters": 0 if schema is None else schema})


@pytest.mark.parametrize(
    "schema",
    [None, {}, {"name": 3}, {"name": ""}, {"name": "a b"}, {"name": "f", "description": 1}],
)
def test_a_supplied_schema_needs_a_name_that_providers_take(schema: object) -> None:
    with pytest.raises(ToolSourceInvalid, match=r"^Invalid json schema: "):
        check_json_schema(schema)


def test_every_derived_schema_is_json() -> None:
    schema = derive_schema(source("x: Special | Point | Node = {1, 2}")).as_json_schema()
    assert json.loads(json.dumps(schema, allow_nan=False)) == schema


class _ParsesWhenCollected:
    """Parses source in its finalizer, as logging a traceback does."""

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        ast.parse("x = 1")


def test_a_finaliser_that_parses_does_not_break_a_parse() -> None:
    before = gc.get_threshold()
    gc.set_threshold(10)
    try:
        for _ in range(20):
            garbage = [_ParsesWhenCollected() for _ in range(5)]
            del garbage
            assert parse("a = [1, 2, (3, 4)]\n" * 200).body
    finally:
        gc.set_threshold(*before)
    assert gc.isenabled()
