"""Model information and versions."""

import os
import re

import pytest

import llb


def test_the_library_has_a_version(library):
    assert re.search(r"\d+\.\d+\.\d+", llb.version())
    assert llb.abi_version() >= 1


@pytest.mark.parametrize(
    "stem, tools", [("text", True), ("no_tools", False), ("no_template", False)]
)
def test_the_header_tells_whether_tools_are_supported(models, stem, tools):
    info = llb.model_info(models(stem))
    assert info["type"] == "model_info"
    assert info["error"] is None
    assert info["supports_tools"] is tools


def test_a_tool_use_template_takes_precedence(models):
    info = llb.model_info(models("tool_use"))
    assert info["has_tool_use_template"] is True
    assert info["supports_tools"] is True


@pytest.mark.parametrize("kind", [str, os.fsencode, lambda path: path])
def test_a_path_is_str_bytes_or_pathlike(models, kind):
    assert llb.model_info(kind(models("text")))["error"] is None


def test_a_template_that_does_not_parse_is_an_error_with_the_whole_info(models):
    with pytest.raises(llb.LlbError) as caught:
        llb.model_info(models("bad_template"))
    error = caught.value
    assert error.code == "TEMPLATE_ERROR"
    assert error.message
    assert error.info["error"] == "chat_template"
    assert error.info["supports_tools"] is False


def test_a_file_that_is_not_a_model_is_invalid(library, tmp_path):
    file = tmp_path / "model.gguf"
    file.write_text("not a model")
    with pytest.raises(llb.LlbError) as caught:
        llb.model_info(file)
    assert caught.value.code == "MODEL_INVALID"
    assert caught.value.info["error"] == "load_model"


def test_a_missing_file_is_not_found(library, tmp_path):
    with pytest.raises(llb.LlbError) as caught:
        llb.model_info(tmp_path / "absent.gguf")
    assert caught.value.code == "MODEL_NOT_FOUND"
    assert caught.value.info["error"] == "model_not_found"


def test_a_null_byte_in_a_path_is_refused(library):
    with pytest.raises(ValueError, match="null byte"):
        llb.model_info("model.gguf\0.txt")
