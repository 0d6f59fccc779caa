"""LangChain's own standard tests on `ChatLlb`: `make test-python-frameworks`."""

import os
import re
from pathlib import Path

import pytest
from langchain_tests.integration_tests import ChatModelIntegrationTests
from langchain_tests.unit_tests import ChatModelUnitTests

from llb.langchain import ChatLlb

MODEL = Path(os.environ.get("LLB_MODELS", "")) / "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"
README = Path(__file__).resolve().parents[1] / "README.md"


@pytest.mark.skipif(not MODEL.is_file(), reason=f"no {MODEL.name} in LLB_MODELS")
def test_the_block_of_the_readme_runs(tmp_path, monkeypatch, capsys):
    (block,) = re.findall(
        r"^```python\n([^`]*llb\.langchain[^`]*)^```", README.read_text(encoding="utf-8"), re.M
    )
    (tmp_path / "model.gguf").symlink_to(MODEL)
    monkeypatch.chdir(tmp_path)
    exec(compile(block, str(README), "exec"), {})
    assert capsys.readouterr().out.strip()


class Shared:
    @property
    def chat_model_class(self):
        return ChatLlb

    @property
    def chat_model_params(self):
        return {"model": str(MODEL), "seed": 1, "options": {"n_ctx": 4096, "n_threads": 1}}


class TestUnit(Shared, ChatModelUnitTests):
    pass


@pytest.mark.skipif(not MODEL.is_file(), reason=f"no {MODEL.name} in LLB_MODELS")
class TestIntegration(Shared, ChatModelIntegrationTests):
    @property
    def supports_json_mode(self):
        return True

    @pytest.mark.xfail(reason="the model, of 0.5 billion parameters, calls no tool by itself")
    def test_agent_loop(self, model):
        super().test_agent_loop(model)
