"""Tools from functions, and the loop that runs them."""

import asyncio
import contextvars
import functools
import json
import threading
from dataclasses import dataclass
from typing import Annotated, List, Literal, Optional, Tuple

import pytest

import llb
from llb._function_tool import FunctionTool
from test_chat import HELLO


def google(city: str, days: int = 1) -> str:
    """The weather
    in a city.

    Args:
        city (str): The name of the city,
            in English.
        days: How many days.

    Returns:
        A text.
    """


def sphinx(city: str, days: int = 1) -> str:
    """The weather
    in a city.

    :param city: The name of the city,
        in English.
    :param int days: How many days.
    :returns: A text.
    """


def numpy(city: str, days: int = 1) -> str:
    """The weather
    in a city.

    Parameters
    ----------
    city : str
        The name of the city,
        in English.
    days : int
        How many days.
    """


def annotated(
    city: Annotated[str, "The name of the city, in English."],
    days: Annotated[int, "How many days."] = 1,
) -> str:
    """The weather
    in a city."""


@pytest.mark.parametrize("function", [google, sphinx, numpy, annotated])
def test_a_function_becomes_a_tool(function):
    assert FunctionTool(function).schema() == {
        "type": "function",
        "function": {
            "name": function.__name__,
            "description": "The weather\nin a city.",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": "The name of the city, in English."},
                    "days": {"type": "integer", "description": "How many days."},
                },
                "required": ["city"],
                "additionalProperties": False,
            },
        },
    }


@dataclass
class Place:
    name: str
    country: Optional[str] = None


def test_arguments_have_the_types_of_the_parameters():
    def visit(places: List[Place], how: Literal["car", "train"] = "car"):
        return [type(each) for each in places], how

    call = FunctionTool(visit).call
    assert call('{"places": [{"name": "Rome"}]}') == ([Place], "car")
    for arguments, message in [
        ('{"places": [{"name": 1}]}', "places[0].name: expected string"),
        ('{"how": "car"}', "places: missing argument"),
        ('{"places": [], "how": "foot"}', "how: expected one of"),
        ('{"places": [], "why": 1}', "why: unknown argument"),
    ]:
        with pytest.raises(ValueError) as caught:
            call(arguments)
        assert message in str(caught.value)


def test_methods_and_callable_objects_become_tools():
    class Shop:
        def price(self, item: str) -> int:
            """The price of an item."""
            return len(item)

        def __call__(self, item: str) -> int:
            return 2

    assert FunctionTool(Shop().price).call('{"item": "abc"}') == 3
    assert FunctionTool(Shop()).schema()["function"]["name"] == "Shop"


def test_partial_functions_become_tools():
    tool = FunctionTool(functools.partial(google, days=3))
    assert tool.schema() == FunctionTool(google).schema()
    tool = FunctionTool(functools.partial(functools.partial(google, "Rome"), days=3))
    assert tool.schema()["function"]["parameters"]["required"] == []
    assert FunctionTool(functools.partial(divmod_of, 7)).call('{"b": 2}') == (3, 1)


def divmod_of(a: int, b: int) -> Tuple[int, int]:
    return divmod(a, b)


def test_the_type_of_the_result_is_not_read():
    def f(city: str) -> "Undefined":  # noqa: F821
        return city

    @functools.wraps(f)
    def wrapper(*arguments, **named):
        return f(*arguments, **named)

    assert FunctionTool(f).schema() == FunctionTool(wrapper).schema()


def no_annotation(x):
    return x


def rest(*x: int):
    return x


def members(**x: int):
    return x


def positional(x: int, /):
    return x


def undefined(x: "Undefined"):  # noqa: F821
    return x


@pytest.mark.parametrize(
    "function, message",
    [
        (no_annotation, "no_annotation: the parameter x has no type annotation"),
        (rest, r"rest: a tool cannot have the parameter \*x"),
        (members, r"members: a tool cannot have the parameter \*\*x"),
        (positional, "positional: a tool cannot have the parameter x"),
        (undefined, "undefined: name 'Undefined' is not defined; an annotation needs"),
        (lambda: 1, "<lambda> is no name for a tool"),
    ],
)
def test_other_functions_are_refused(function, message):
    with pytest.raises(TypeError, match=message):
        FunctionTool(function)


def test_the_loop_ends_after_max_rounds(chat):
    """The scripted model calls `get_weather` in every round."""
    seen = []

    def get_weather(city: str) -> dict:
        seen.append(city)
        return {"city": city, "celsius": 18}

    with pytest.raises(llb.TooManyRounds) as caught:
        chat("tool_call").run(HELLO, tools=[get_weather], max_rounds=3, temperature=0)
    assert seen == ["Paris", "Paris"]
    assert caught.value.reply["tool_calls"][0]["name"] == "get_weather"
    with pytest.raises(ValueError, match="max_rounds"):
        chat("tool_call").run(HELLO, tools=[get_weather], max_rounds=0)
    with pytest.raises(TypeError, match="same name"):
        chat("tool_call").run(HELLO, tools=[get_weather, get_weather])


def test_a_reply_without_calls_ends_the_run(chat, expected):
    run = chat("text").run(HELLO, tools=[google], temperature=0)
    assert run.reply["text"] == expected["text"]
    assert run.messages == [*HELLO, run.reply["message"]]


# The diagnostic of a text that looks like a call.
LOST = {"code": "call_like_content", "message": "the reply is a call without tags"}


def replies(*contents):
    """Makes a chat whose model is a list of replies. Records the requests."""
    left, requests = list(contents), []

    def perform(function, request):
        requests.append(json.loads(json.dumps(request)))
        calls = [
            {"id": f"call_{at}", "name": name, "arguments": arguments}
            for at, (name, arguments) in enumerate(left[0] if isinstance(left[0], list) else [])
        ]
        text = "" if calls else left[0]
        left.pop(0)
        return {
            "text": text,
            "tool_calls": calls,
            "finish_reason": "tool_calls" if calls else "stop",
            "message": {"role": "assistant", "content": text},
            "diagnostics": [LOST] if text.startswith("{") else [],
        }

    return perform, requests


@pytest.fixture
def answer(models, monkeypatch):
    """Runs tools on a scripted conversation, in both kinds of chat."""

    def run_both(contents, tools, **parameters):
        outcomes = []
        with llb.Chat(models("text")) as chat:
            perform, requests = replies(*contents)
            monkeypatch.setattr(chat, "_perform", perform)
            outcomes.append((chat.run(HELLO, tools, **parameters), requests))

        async def main():
            async with llb.AsyncChat(models("text")) as chat:
                perform, requests = replies(*contents)

                async def asynchronous(function, request):
                    return perform(function, request)

                monkeypatch.setattr(chat, "_perform", asynchronous)
                return await chat.run(HELLO, tools, **parameters), requests

        outcomes.append(asyncio.run(main()))
        return outcomes

    return run_both


def tool_contents(run):
    return [
        (each["tool_call_id"], json.loads(each["content"]))
        for each in run.messages
        if each["role"] == "tool"
    ]


def test_a_lost_call_is_warned_of(answer):
    with pytest.warns(UserWarning, match="a tool call was lost: the reply is a call") as warned:
        outcomes = answer(['{"name": "unknown", "arguments": {}}'], [google])
    assert [run.reply["diagnostics"] for run, _ in outcomes] == [[LOST], [LOST]]
    assert len(warned) == 2


def test_calls_of_one_reply_run_at_the_same_time(answer):
    barrier = threading.Barrier(2, timeout=300)
    inside = []

    def blocking(a: int) -> int:
        barrier.wait()
        return a

    async def awaiting(a: int) -> int:
        inside.append(a)
        while len(inside) % 2:
            await asyncio.sleep(0.001)
        return a

    for function in (blocking, awaiting):
        inside.clear()
        calls = [(function.__name__, '{"a": 1}'), (function.__name__, '{"a": 2}')]
        for run, _ in answer([calls, "done"], [function]):
            assert tool_contents(run) == [("call_0", 1), ("call_1", 2)]
            assert run.reply["text"] == "done"


def test_errors_are_results(answer):
    def divide(a: int, b: int) -> float:
        return a / b

    calls = [("divide", '{"a": 1, "b": 0}'), ("divide", '{"a": "x", "b": 1}'), ("gone", "{}")]
    for run, _ in answer([calls, "done"], [divide]):
        errors = [content["error"] for _, content in tool_contents(run)]
        assert errors == [
            "ZeroDivisionError: division by zero",
            'ValueError: a: expected integer, found "x"',
            "LookupError: no tool gone",
        ]


def test_whatever_a_function_does_is_a_result(answer):
    class Odd:
        def __str__(self):
            raise RuntimeError("odd")

    itself = []
    itself.append(itself)

    def ends() -> str:
        return next(iter(()))

    def keyed() -> dict:
        return {(1, 2): 3}

    def odd() -> Odd:
        return Odd()

    def circular() -> list:
        return itself

    def nothing() -> None:
        return None

    def long() -> str:
        return "x" * 1_000_000

    def later() -> int:
        return asyncio.sleep(0, 5)

    async def fails() -> str:
        raise KeyError("x")

    tools = [ends, keyed, odd, circular, nothing, long, later, fails]
    calls = [*((each.__name__, "{}") for each in tools), ("nothing", "[1]")]
    for run, _ in answer([calls, "done"], tools):
        contents = [each["content"] for each in run.messages if each["role"] == "tool"]
        # A plain function that returns an awaitable is awaited.
        assert contents[4:7] == ["null", "x" * 1_000_000, "5"]
        errors = [json.loads(each)["error"] for each in (*contents[:4], *contents[7:])]
        assert [each.partition(":")[0] for each in errors] == [
            "StopIteration",
            "TypeError",
            "RuntimeError",
            "ValueError",
            "KeyError",
            "ValueError",
        ]
        assert errors[-1] == "ValueError: the arguments: expected an object, found [1]"


def test_a_forced_call_is_forced_once(answer):
    def f() -> str:
        return "x"

    for _, requests in answer([[("f", "{}")], "done"], [f], tool_choice="required"):
        assert [request["tool_choice"] for request in requests] == ["required", "auto"]
        assert requests[1]["messages"][-1] == {
            "role": "tool",
            "tool_call_id": "call_0",
            "content": "x",
        }


def test_functions_see_context_variables(answer):
    variable = contextvars.ContextVar("variable", default=0)
    variable.set(7)

    def read() -> int:
        return variable.get()

    for run, _ in answer([[("read", "{}")], "done"], [read]):
        assert tool_contents(run) == [("call_0", 7)]


def test_a_real_model_uses_a_function(real_model):
    cities = []

    def get_weather(city: str) -> str:
        """The current weather in a city."""
        cities.append(city)
        return "It is 18 degrees and foggy."

    question = [{"role": "user", "content": "What is the weather in Paris?"}]
    with llb.Chat(real_model, n_ctx=2048, n_threads=1) as chat:
        reply, messages = chat.run(
            question, [get_weather], tool_choice="required", temperature=0, max_tokens=64
        )
    assert "Paris" in cities[0]
    assert [each["role"] for each in messages][:3] == ["user", "assistant", "tool"]
    assert messages[2]["content"] == "It is 18 degrees and foggy."
    assert messages[-1] == reply["message"]
