"""Model information and versions."""

import asyncio
import os
import re
from pathlib import Path

import pytest

import llb
from llb import types
from test_types import assert_shape


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


def test_memory_of_a_chat(models):
    small = llb.memory(models("text"), n_ctx=512, n_parallel=1)
    large = llb.memory(Path(models("text")), n_ctx=1024, n_parallel=1)
    assert (small["n_ctx"], large["n_ctx"], small["fits"]) == (512, 1024, True)
    assert (large["cache"], large["weights"]) == (2 * small["cache"], small["weights"])
    for size in ("weights", "cache", "compute", "total"):
        assert small[size] == sum(device[size] for device in small["devices"])
    assert llb.memory(models("text"), n_ctx="fit")["n_ctx"] == small["largest_n_ctx"]
    with pytest.raises(llb.LlbError, match="^INVALID_REQUEST: n_ctx"):
        llb.memory(models("text"), n_ctx=-1)
    with pytest.raises(llb.LlbError, match="^MODEL_NOT_FOUND"):
        llb.memory("none.gguf")
    with pytest.raises(TypeError, match="n_ctxx"):
        llb.memory(models("text"), n_ctxx=1)


def test_memory_of_a_draft_model(models):
    alone = llb.memory(models("text"), n_ctx=512)
    both = llb.memory(models("text"), n_ctx=512, draft_model=models("text"))
    assert_shape(both, types.Memory)
    assert_shape(both["draft"], types.PartMemory)
    assert both["draft"]["total"] == alone["total"] == both["total"] / 2


def test_prefixes_on_disk(models, tmp_path):
    messages = [
        {"role": "system", "content": "x" * 100},
        {"role": "user", "content": "Hello"},
    ]
    read = []
    for _ in range(2):
        folder = tmp_path / "cache"
        with llb.Chat(models("text"), n_ctx=904, cache_dir=folder, cache_bytes=1 << 20) as chat:
            timings = chat.create(messages, temperature=0)["timings"]
        assert_shape(timings, types.Timings)
        read.append(timings["disk_tokens"])
    assert read[0] == 0 and read[1] > 100
    assert [file.suffix for file in folder.iterdir()] == [".llbprefix"]


def test_memory_of_several_contexts(models):
    changes = [
        {},
        {"n_ctx": 1024, "n_parallel": 1},
        {"n_ctx": 1024, "n_batch": 64, "cache_type_k": "f32", "cache_type_v": "f32"},
        # llama.cpp needs flash attention for such values.
        {"flash_attn": "off", "cache_type_v": "q8_0"},
    ]
    options = {"n_ctx": 512, "n_parallel": 2}
    result = llb.memory(models("text"), **options, contexts=changes)
    *made, refused = result["contexts"]
    sizes = ("n_ctx", "n_parallel", "weights", "cache", "compute")
    for change, found in zip(changes, made):
        assert_shape(found, types.ContextMemory)
        alone = llb.memory(models("text"), **{**options, **change})
        assert [found[size] for size in sizes] == [alone[size] for size in sizes]
        for device in found["devices"]:
            assert_shape(device, types.DeviceMemory)
    assert len(made) == 3
    assert_shape(refused, types.ContextError)
    assert refused["error"]["code"] == "INFERENCE_FAILED"
    assert_shape(result, types.Memory)
    assert llb.memory(models("text"))["contexts"] == []
    with llb.Model(models("text"), **options) as model:
        assert len(model.memory(contexts=({}, {}))["contexts"]) == 2
    with pytest.raises(llb.LlbError, match=r"^INVALID_REQUEST: contexts\[0\].n_ctx"):
        llb.memory(models("text"), contexts=[{"n_ctx": -1}])


def test_a_model_is_unloaded_and_loaded_again(models):
    path = models("text")
    with llb.Chat(path, n_ctx=900, n_threads=1, keep_alive=600) as chat:
        messages = [{"role": "user", "content": "Hello"}]
        text = chat.create(messages, temperature=0)["text"]
        assert llb.unload(path) >= 1
        assert llb.unload(Path(path)) == 0
        assert chat.create(messages, temperature=0)["text"] == text
    for absent, problem in [("none.gguf", "no such file"), ("/", "is a directory")]:
        message = f"^MODEL_NOT_FOUND: model_path: {absent}: {problem}"
        with pytest.raises(llb.LlbError, match=message):
            llb.unload(absent)


def test_memory_of_an_open_model(models):
    """With the options of the model."""
    options = {"n_ctx": 512, "n_parallel": 2, "cache_type_k": "q8_0"}
    own = {"on_event": lambda event: None, "log": "warn", "n_threads": 1}
    sizes = ("n_ctx", "n_parallel", "weights", "cache", "compute")
    expected = llb.memory(models("text"), **options)
    assert expected["cache"] != llb.memory(models("text"), n_ctx=512, n_parallel=2)["cache"]

    async def measure():
        async with llb.AsyncModel(models("text"), **options, **own) as model:
            return await model.memory()

    with llb.Model(models("text"), **options, **own) as model:
        for found in (model.memory(), asyncio.run(measure())):
            assert [found[size] for size in sizes] == [expected[size] for size in sizes]
            assert "ignored_keys" not in found
