"""`parse`: types to JSON Schema, replies to values."""

import asyncio
import dataclasses
import enum
import json
import pickle
import sys
import textwrap
import types
from typing import (
    Any,
    Dict,
    List,
    Literal,
    NamedTuple,
    NewType,
    Optional,
    Tuple,
    TypedDict,
    Union,
)

import pytest

import llb
from conftest import skip
from llb._json_schema import schema_of
from llb._json_value import from_json, to_json
from llb._parse import parsed, with_format
from test_chat import HELLO


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Person:
    name: str
    age: int
    height: Optional[float] = None
    friends: List["Person"] = dataclasses.field(default_factory=list)


class Movie(TypedDict):
    title: str
    year: int


class MaybeMovie(Movie, total=False):
    stars: Literal[1, 2, 3]


class Point(NamedTuple):
    x: int
    y: int = 0


def third_party():
    """Types of pydantic and msgspec, each with a member that is required."""
    kinds = []
    try:
        import pydantic

        kinds.append(pydantic.create_model("Animal", name=(str, ...), legs=(int, 4)))
    except ImportError:
        pass
    try:
        import msgspec

        kinds.append(msgspec.defstruct("Plant", [("name", str), ("leaves", int, 3)]))
    except ImportError:
        pass
    if len(kinds) < 2:
        skip("no pydantic or no msgspec")
    return kinds


def validator(hint):
    """Validates by an implementation of JSON Schema that is not ours."""
    try:
        import jsonschema
    except ImportError:
        skip("no jsonschema")
    return jsonschema.Draft202012Validator(schema_of(hint))


ALICE = '{"name": "Alice", "age": 30, "friends": [{"name": "Bo", "age": 4, "height": 1}]}'
# A type, JSON that fits with its value, and JSON that does not fit with a part of the message.
CASES = [
    (
        Person,
        ALICE,
        Person("Alice", 30, None, [Person("Bo", 4, 1.0)]),
        '{"name": "A"}',
        "age: missing",
    ),
    (Person, ALICE, None, '{"name": "A", "age": "x"}', "age: expected integer"),
    (Person, ALICE, None, '{"name": "A", "age": 1, "b": 1}', "b: unknown member"),
    (
        Person,
        ALICE,
        None,
        '{"name": "A", "age": 1, "friends": [{"name": 2, "age": 3}]}',
        "friends[0].name: expected string",
    ),
    (Movie, '{"title": "M", "year": 1}', {"title": "M", "year": 1}, '{"title": "M"}', "year"),
    (
        MaybeMovie,
        '{"title": "M", "year": 1}',
        None,
        '{"title": "M", "year": 1, "stars": 4}',
        "stars",
    ),
    (Point, '{"x": 1}', Point(1, 0), '{"y": 1}', "x: missing"),
    (Color, '"red"', Color.RED, '"green"', "one of"),
    (Union[int, List[str]], '["a"]', ["a"], '{"a": 1}', "expected integer"),
    (Optional[bool], "null", None, "1", "expected boolean"),
    (Dict[str, int], '{"a": 1}', {"a": 1}, '{"a": true}', "a: expected integer"),
    (Tuple[int, str], '[1, "a"]', (1, "a"), "[1]", "2 items"),
    (Tuple[int, ...], "[1, 2, 3]", (1, 2, 3), '["a"]', "[0]: expected integer"),
    (float, "1", 1.0, '"a"', "number"),
    (Any, '{"a": [1]}', {"a": [1]}, None, None),
]


@pytest.mark.parametrize("hint, good, value, bad, message", CASES)
def test_values_are_read_and_checked(hint, good, value, bad, message):
    read = from_json(good, hint)
    assert value is None or read == value
    if bad is not None:
        with pytest.raises(ValueError) as caught:
            from_json(bad, hint)
        assert message in str(caught.value)


@pytest.mark.parametrize("hint, good, value, bad, message", CASES)
def test_schemas_accept_the_same_values(hint, good, value, bad, message):
    valid = validator(hint)
    assert valid.is_valid(json.loads(good))
    assert bad is None or not valid.is_valid(json.loads(bad))


@pytest.mark.skipif(sys.version_info < (3, 10), reason="X | Y needs Python 3.10")
def test_unions_may_be_written_with_a_bar():
    hint = eval("int | None")
    assert schema_of(hint) == {"anyOf": [{"type": "integer"}, {"type": "null"}]}
    assert from_json("null", hint) is None


UserId = NewType("UserId", int)


def test_a_new_type_is_its_base():
    assert schema_of(List[UserId]) == schema_of(List[int])
    assert from_json("[7]", List[UserId]) == [7]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the statement type needs Python 3.12")
def test_an_alias_is_its_type():
    names = {}
    exec("type Names = list[str]", names)
    assert schema_of(names["Names"]) == schema_of(List[str])
    assert from_json('["a"]', names["Names"]) == ["a"]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="NotRequired needs Python 3.11")
def test_postponed_annotations_say_what_is_required(monkeypatch):
    module = types.ModuleType("postponed")
    monkeypatch.setitem(sys.modules, "postponed", module)
    code = """
        from __future__ import annotations
        from typing import Annotated, NotRequired, Required, TypedDict

        class Base(TypedDict):
            a: int
            b: NotRequired[int]
            c: Annotated[NotRequired[int], "C"]

        class Postponed(Base, total=False):
            d: int
            e: Required[int]
    """
    exec(textwrap.dedent(code), vars(module))
    assert schema_of(module.Postponed)["$defs"]["Postponed"]["required"] == ["a", "e"]
    assert from_json('{"a": 1, "e": 2}', module.Postponed) == {"a": 1, "e": 2}


def test_a_type_inside_a_function_may_contain_itself():
    @dataclasses.dataclass
    class Node:
        value: int
        rest: Optional["Node"] = None

    text = '{"value": 1, "rest": {"value": 2}}'
    assert from_json(text, Node) == Node(1, Node(2))
    assert validator(Node).is_valid(json.loads(text))
    assert not validator(Node).is_valid({"value": 1, "rest": {}})


def test_an_undefined_name_is_a_type_error():
    @dataclasses.dataclass
    class Holder:
        one: "Undefined"  # noqa: F821

    with pytest.raises(TypeError, match="Holder: name 'Undefined' is not defined; an annotation"):
        schema_of(Holder)


@pytest.mark.parametrize("hint", [Dict[int, str], complex, object(), List[bytes]])
def test_a_type_without_json_is_refused(hint):
    with pytest.raises(TypeError):
        schema_of(hint)


def test_values_become_json():
    value = [Person("A", 1), Color.RED, Point(1), {"s": {1}}]
    assert json.loads(to_json(value)) == [
        {"name": "A", "age": 1, "height": None, "friends": []},
        "red",
        [1, 0],
        {"s": [1]},
    ]


def test_types_of_pydantic_and_msgspec():
    for kind in third_party():
        holder = dataclasses.make_dataclass("Holder", [("one", kind), ("all", List[kind])])
        one = '{"name": "x"}'
        text = f'{{"one": {one}, "all": [{one}, {one}]}}'
        value = from_json(text, holder)
        assert [type(each) for each in [value.one, *value.all]] == [kind] * 3
        assert validator(holder).is_valid(json.loads(text))
        assert not validator(holder).is_valid({"one": {"name": 1}, "all": []})
        with pytest.raises(Exception, match="name"):
            from_json('{"name": 1}', kind)


def test_types_of_libraries_are_not_imported(script):
    code = "import sys, llb._parse; print({'pydantic', 'msgspec'} & set(sys.modules))"
    assert script(code) == "set()\n"


@pytest.mark.parametrize("hint", [Person, Movie, Point, List[Color]])
def test_a_reply_is_a_value_of_the_type(chat, hint):
    """The scripted model does not know the schema; the grammar makes it write some value."""
    value = chat("text").parse(HELLO, hint, temperature=0, max_tokens=400)
    assert from_json(to_json(value._asdict() if hint is Point else value), hint) == value


def test_the_model_is_asked_for_the_types_of_libraries(chat, models):
    for kind in third_party():
        assert isinstance(chat("text").parse(HELLO, kind, temperature=0), kind)

        async def main(kind=kind):
            async with llb.AsyncChat(models("text")) as chat:
                return await chat.parse(HELLO, kind, temperature=0)

        assert isinstance(asyncio.run(main()), kind)


def test_a_reply_that_is_cut_off_is_an_exception(chat):
    with pytest.raises(llb.ReplyTruncated) as caught:
        chat("text").parse(HELLO, Person, max_tokens=2)
    assert caught.value.code == "REPLY_TRUNCATED"
    assert caught.value.reply["finish_reason"] == "length"
    assert isinstance(caught.value, llb.ReplyError)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (type(copy), copy.reply) == (llb.ReplyTruncated, caught.value.reply)


@pytest.mark.parametrize(
    "text, kind", [("I cannot do that.", llb.ReplyRefused), ('{"name": 1}', llb.ReplyInvalid)]
)
def test_other_replies_are_exceptions(chat, text, kind):
    """Only a server without constraints replies like this."""
    reply = {**chat("text").create(HELLO), "text": text}
    with pytest.raises(kind) as caught:
        parsed(reply, Person)
    assert caught.value.__cause__ is not None


@pytest.mark.parametrize("name", ["response_format", "grammar"])
def test_parse_sets_the_format(chat, name):
    with pytest.raises(TypeError, match=name):
        chat("text").parse(HELLO, Person, **{name: "x"})
    with pytest.raises(TypeError, match="Chat.parse.* did you mean 'temperature'"):
        chat("text").parse(HELLO, Person, temprature=1)


def test_a_real_model_fills_a_type(real_model):
    @dataclasses.dataclass
    class City:
        city: str
        country: str

    with llb.Chat(real_model, n_ctx=2048, n_threads=1) as chat:
        value = chat.parse(
            [{"role": "user", "content": "What is the capital of France?"}], City, temperature=0
        )
    assert value == City("Paris", "France")


def test_typed_replies_are_bounded_unless_the_caller_says_otherwise():
    for given, penalty in [({}, 1.1), ({"repeat_penalty": None}, 1.1), ({"repeat_penalty": 1}, 1)]:
        assert with_format(given, Person)["repeat_penalty"] == penalty
    for given, bounded in [
        ({}, True),
        ({"bound_schema": None}, True),
        ({"bound_schema": False}, False),
    ]:
        assert with_format(given, Person)["bound_schema"] is bounded


def test_the_prompt_shows_the_schema_of_a_type(models):
    def applied(**parameters):
        # One token of a reply, which is not the whole JSON.
        with pytest.raises(llb.ReplyTruncated) as caught:
            chat.parse(HELLO, Person, max_tokens=1, **parameters)
        return caught.value.reply["polyfills_applied"]

    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema_of(Person)}}
    with llb.Chat(models("text")) as chat:
        assert applied() == ["schema_in_prompt"]
        assert applied(schema_in_prompt=False) == []
        shown = chat.explain(HELLO, response_format=form, schema_in_prompt=True)
        hidden = chat.explain(HELLO, response_format=form)
    assert json.dumps(schema_of(Person), ensure_ascii=False) in shown["prompt"]
    assert "height" not in hidden["prompt"]
    assert shown["polyfills_applied"] == ["schema_in_prompt"]
    assert hidden["polyfills_applied"] == []
