"""The parameters of a request: their names are those of the library, and others are refused."""

import inspect
import re
from pathlib import Path

import pytest

import llb
from llb.types import RequestParameters
from test_chat import HELLO, WEATHER

ABI = Path(__file__).resolve().parents[3] / "docs" / "abi.md"

# Valid values. Those in one request must not exclude each other. A parameter of the samplers that
# is not here gets its default.
VALUES = {
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "untagged_calls": True,
    "skills": [{"name": "a", "description": "b"}],
    "response_format": {"type": "text"},
    "schema_in_prompt": True,
    "bound_schema": True,
    "max_tokens": 4,
    "max_completion_tokens": 4,
    "temperature": 0.5,
    "top_p": 0.9,
    "top_k": 3,
    "min_p": 0.1,
    "typical_p": 1.0,
    "repeat_penalty": 1.1,
    "presence_penalty": 0.1,
    "frequency_penalty": 0.1,
    "repeat_last_n": 32,
    "samplers": ["penalties", "dry", "top_k", "temperature"],
    "dry_multiplier": 0.8,
    "dry_base": 1.5,
    "dry_allowed_length": 3,
    "dry_penalty_last_n": -1,
    "dry_sequence_breakers": ["\n"],
    "top_n_sigma": 1.5,
    "xtc_probability": 0.5,
    "xtc_threshold": 0.2,
    "dynatemp_range": 0.3,
    "dynatemp_exponent": 1.5,
    "mirostat": 2,
    "mirostat_tau": 4.0,
    "mirostat_eta": 0.2,
    "adaptive_target": 0.4,
    "adaptive_decay": 0.8,
    "seed": 1,
    "stop": ["x"],
    "stop_scope": "all",
    "logit_bias": {"1": 0.5},
    "logprobs": True,
    "top_logprobs": 1,
    "enable_thinking": False,
    "reasoning_effort": "low",
    "preserve_reasoning": True,
    "reasoning_budget": 1,
    "reasoning_budget_tokens": 1,
    "thinking_budget_tokens": 1,
    "reasoning_budget_message": "x",
    "n_keep": -1,
    "context_overflow": "error",
    "chat_template_kwargs": {"a": 1},
    "add_generation_prompt": True,
    "continue_final_message": False,
    "now": "2026-01-31T09:30:00",
    "polyfills": {"apply_polyfills": True},
    "parse_special_in_messages": False,
    "cache_prompt": False,
    "lora": [],
    "speculative": "off",
    "stream_format": "chunks",
    "stream_options": {"include_usage": True},
    "timeout_ms": 60000,
}
# Not beside `tools`.
GRAMMAR = {"grammar": 'start: "a"'}


def documented():
    """The members of a chat request in docs/abi.md: the table, and the other names of one."""
    text = ABI.read_text(encoding="utf-8").split("## Chat requests")[1].split("### The reply")[0]
    rows = [row.split(" | ")[0] for row in text.splitlines() if row.startswith("| `")]
    others = re.search(r"((?:`\w+`(?: and )?)+) are\s+other names of the member", text).group(1)
    return set(re.findall(r"`(\w+)`", "".join([*rows, others])))


def test_the_table_has_the_names_of_the_documentation():
    if not ABI.is_file():
        pytest.skip("not in a checkout")
    assert {"messages", "tools", *RequestParameters.__annotations__} == documented()


def test_the_library_reads_every_parameter(chat):
    chat = chat("text")
    values = {**chat.explain(HELLO)["sampling"], **VALUES}
    in_place_of_messages = {"prompt", "suffix"}
    assert {*values, *GRAMMAR, *in_place_of_messages} == set(RequestParameters.__annotations__)
    for request in ({**values, "tools": [WEATHER]}, GRAMMAR):
        explanation = chat.explain(HELLO, **request, extra_body={"bogus": 1})
        assert explanation["ignored_keys"] == ["bogus"]
    explanation = chat.explain(None, prompt="Hello", extra_body={"bogus": 1})
    assert explanation["ignored_keys"] == ["bogus"]
    with pytest.raises(llb.LlbError, match="^INVALID_REQUEST: suffix: "):
        chat.explain(None, prompt="Hello", suffix="there")


@pytest.mark.parametrize("method", ["create", "explain"])
@pytest.mark.parametrize(
    "name, hint",
    [
        ("temprature", "did you mean 'temperature'?"),
        ("max_token", "did you mean 'max_tokens'?"),
        ("tols", "did you mean 'tools'?"),
        ("xyzzy", "extra_body"),
    ],
)
def test_an_unknown_parameter_is_refused_with_the_nearest_name(chat, method, name, hint):
    with pytest.raises(TypeError) as caught:
        getattr(chat("text"), method)(HELLO, **{name: 1})
    assert f"Chat.{method}() got an unexpected keyword argument {name!r}" in str(caught.value)
    assert hint in str(caught.value)


def test_extra_body_is_added_to_the_request(chat):
    reply = chat("text").create(HELLO, max_tokens=9, extra_body={"max_tokens": 1, "new": 2})
    assert reply["usage"]["completion_tokens"] == 1
    assert reply["ignored_keys"] == ["new"]


@pytest.mark.parametrize("method", [llb.Chat.create, llb.Chat.explain])
def test_help_shows_the_parameters(method):
    parameters = inspect.signature(method).parameters
    assert parameters["temperature"].default is None
    assert not [each for each in parameters.values() if each.kind is each.VAR_KEYWORD]
    for name in RequestParameters.__annotations__:
        assert f"\n    {name}: " in method.__doc__


@pytest.mark.parametrize("kind", [llb.Chat, llb.Model, llb.AsyncChat, llb.AsyncModel])
def test_methods_have_the_name_of_the_class_that_callers_know(kind):
    for name in ("create", "explain", "parse", "run"):
        method = getattr(kind, name)
        assert method.__qualname__ == f"{kind.__name__}.{name}"
        assert "temperature" in inspect.signature(method).parameters
        assert "temperature:" in method.__doc__
        with pytest.raises(TypeError, match=rf"^{kind.__name__}\.{name}\(\) missing .* 'messages'"):
            method(object())
