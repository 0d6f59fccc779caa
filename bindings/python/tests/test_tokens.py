"""`tokenize`, `detokenize` and `count_tokens` of `Model` and `AsyncModel`."""

import inspect

import pytest

import llb
from test_chat import HELLO, WEATHER

# Scripted vocabularies have one token for each byte.
TEXT = "A\u00fc<|im_end|>"


@pytest.fixture
def model(models):
    with llb.Model(models("text"), n_threads=1) as opened:
        yield opened


def test_a_text_and_its_tokens(model):
    plain = model.tokenize(TEXT)
    assert plain["n_tokens"] == len(plain["ids"]) == len(TEXT.encode()) == len(plain["tokens"])
    assert [each.get("bytes") for each in plain["tokens"][:3]] == [None, [0xC3], [0xBC]]
    assert model.detokenize(plain["ids"]) == TEXT
    special = model.tokenize(TEXT, parse_special=True)
    assert special["n_tokens"] == 4 and special["tokens"][3]["special"]
    assert model.detokenize(iter(special["ids"])) == TEXT
    assert model.detokenize(special["ids"], unparse_special=False) == "A\u00fc"
    assert model.detokenize(plain["ids"][:2]) == "A\ufffd"
    with pytest.raises(llb.LlbError, match=r"^INVALID_REQUEST: ids\[1\]"):
        model.detokenize([1, 10**6])


@pytest.mark.parametrize(
    "request_",
    [
        {},
        {"tools": [WEATHER]},
        {"chat_template_kwargs": {"x": 1}, "max_tokens": 5},
        {"extra_body": {"add_generation_prompt": False}},
    ],
)
def test_the_count_is_that_of_the_reply(model, request_):
    count = model.count_tokens(HELLO, **request_)
    assert count == model.explain(HELLO, **request_)["prompt_tokens"]
    reply = model.create(HELLO, **{**request_, "max_tokens": 1})
    assert reply["usage"]["prompt_tokens"] == count


def test_the_options_of_the_model_count(models):
    template = "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}"
    for options in (
        {"chat_template": template, "tool_policy": "any"},
        {"components": "qwen2.5", "tool_policy": "any"},
        {"isolation": "process"},
    ):
        with llb.Model(models("text"), n_threads=1, **options) as model:
            assert model.count_tokens(HELLO) == model.explain(HELLO)["prompt_tokens"]
            assert model.tokenize("a")["n_tokens"] == 1


def test_errors(model):
    with pytest.raises(TypeError, match=r"Model\.count_tokens\(\).*temperature"):
        model.count_tokens(HELLO, temprature=1)
    with pytest.raises(llb.LlbError, match=r"messages\[0\]\.role"):
        model.count_tokens([{"role": "assistent", "content": "hi"}])


def test_asyncio(run, models):
    async def main():
        async with llb.AsyncModel(models("text"), n_threads=1) as model:
            tokens = await model.tokenize(TEXT, parse_special=True)
            assert tokens["n_tokens"] == 4
            assert await model.detokenize(tokens["ids"], unparse_special=False) == "A\u00fc"
            explained = await model.explain(HELLO, [WEATHER])
            assert await model.count_tokens(HELLO, [WEATHER]) == explained["prompt_tokens"]

    run(main)


def test_both_kinds_of_model_take_the_same_arguments():
    for name in ("tokenize", "detokenize", "count_tokens"):
        one, other = (
            inspect.signature(getattr(kind, name)).parameters
            for kind in (llb.Model, llb.AsyncModel)
        )
        assert list(one) == list(other)
