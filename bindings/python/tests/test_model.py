"""What a header says, and the version."""

import os
import re

import pytest

import llb


def test_version_is_dotted_numbers_and_the_abi_is_one(library):
    assert re.match(r"\d+\.\d+\.\d+", llb.version())
    assert llb.abi_version() >= 1


@pytest.mark.parametrize("stem, tools", [("text", True), ("tool_call", True), ("no_tools", False)])
def test_the_header_says_whether_tools_work(models, stem, tools):
    info = llb.model_info(models(stem))
    assert info["type"] == "model_info"
    assert info["error"] is None
    assert info["supports_tools"] is tools


def test_a_tool_use_template_is_the_one_that_counts(models):
    info = llb.model_info(models("tool_use"))
    assert info["has_tool_use_template"] is True
    assert info["supports_tools"] is True


@pytest.mark.parametrize("kind", [str, os.fsencode, lambda path: path])
def test_a_path_is_text_bytes_or_a_path(models, kind):
    assert llb.model_info(kind(models("text")))["error"] is None


@pytest.mark.parametrize(
    "stem, word, code",
    [
        ("truncated", "load_model", "MODEL_INVALID"),
        ("no_template", "chat_template", "TEMPLATE_ERROR"),
        ("bad_template", "chat_template", "TEMPLATE_ERROR"),
    ],
)
def test_a_bad_file_is_an_error_with_the_whole_info(models, stem, word, code):
    with pytest.raises(llb.LlbError) as caught:
        llb.model_info(models(stem))
    error = caught.value
    assert error.code == code
    assert error.message
    assert error.info["error"] == word
    assert error.info["supports_tools"] is False


def test_an_absent_file_is_not_found(library, tmp_path):
    with pytest.raises(llb.LlbError) as caught:
        llb.model_info(tmp_path / "absent.gguf")
    assert caught.value.code == "MODEL_NOT_FOUND"
    assert caught.value.info["error"] == "model_not_found"


def test_a_null_in_a_path_is_refused_here(library):
    with pytest.raises(ValueError, match="null byte"):
        llb.model_info("model.gguf\0.txt")
