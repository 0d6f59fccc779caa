"""JSON of requests, on both ways to encode it."""

import json
from pathlib import Path

import pytest

from llb import _library

VALUES = {
    "messages": [{"role": "user", "content": '\0 \u00fc \ud800 \U0001f600 " \\ \n'}],
    "numbers": [0, -1, 1.5, 1e300, 2**70, True, False, None],
    "tuple": ({}, [], ()),
    "keys": {0: 1, None: 2, True: 3, 1.5: 4},
}


# No encoder in C, one with other arguments, and one with another result.
OTHERS = [None, lambda options: None, lambda *_: lambda value, level: ("{}",)]


@pytest.fixture(params=[json.encoder.c_make_encoder, *OTHERS])
def encode(request, monkeypatch):
    monkeypatch.setattr(_library, "_encode", _library._make_encode(request.param))
    return _library.encode


def test_a_request_is_json(encode):
    text = encode({**VALUES, "path": Path("a") / "b", "absent": None})
    assert text.isascii()
    expected = {**VALUES, "path": str(Path("a") / "b")}
    assert json.loads(text) == json.loads(json.dumps(expected))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_without_json_are_refused(encode, value):
    with pytest.raises(ValueError):
        encode({"a": [value]})


def test_a_value_that_contains_itself_is_refused(encode):
    circle = [1]
    circle.append({"a": circle})
    with pytest.raises(ValueError):
        encode({"a": circle})
    assert encode({"a": [1]}) == b'{"a": [1]}'


def test_other_objects_are_refused(encode):
    with pytest.raises(TypeError, match="object is not JSON serializable"):
        encode({"a": object()})
