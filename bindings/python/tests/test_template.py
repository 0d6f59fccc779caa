"""Templates without a model."""

import pytest

import llb

TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
MESSAGES = [{"role": "user", "content": "hi"}]


def test_info_reports_tool_support(library):
    info = llb.template_info(chat_template=TEMPLATE)
    assert info["type"] == "template_info"
    assert info["caps"].get("supports_tools", False) is False
    assert info["tool_support"] in ("none", "polyfilled")


def test_info_reads_a_model_file(models):
    assert llb.template_info(gguf=models("text"))["type"] == "template_info"


def test_render_returns_the_prompt(library):
    rendered = llb.template_render(
        chat_template=TEMPLATE, messages=MESSAGES, add_generation_prompt=False
    )
    assert rendered["type"] == "rendered"
    assert rendered["prompt"] == "user: hi\n"


def test_parse_returns_the_message(library):
    parsed = llb.template_parse(chat_template=TEMPLATE, output="hello")
    assert parsed["type"] == "message"
    assert parsed["message"]["content"] == "hello"


def test_a_template_exception_keeps_its_message(library):
    with pytest.raises(llb.LlbError) as caught:
        llb.template_render(chat_template="{{ raise_exception('only users') }}", messages=MESSAGES)
    assert caught.value.code == "TEMPLATE_ERROR"
    assert "only users" in caught.value.message


def test_a_request_without_a_template_is_invalid(library):
    with pytest.raises(llb.LlbError) as caught:
        llb.template_info()
    assert caught.value.code == "INVALID_REQUEST"
