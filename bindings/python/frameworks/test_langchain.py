"""LangChain's own standard tests on `ChatLlb`: `make test-python-frameworks`."""

import os
from pathlib import Path

import pytest
from langchain_tests.integration_tests import ChatModelIntegrationTests
from langchain_tests.unit_tests import ChatModelUnitTests

from llb.langchain import ChatLlb

MODEL = Path(os.environ.get("LLB_MODELS", "")) / "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"


class Shared:
    @property
    def chat_model_class(self):
        return ChatLlb

    @property
    def chat_model_params(self):
        # Replies depend on no other test: neither on its KV cache nor on the number of threads.
        parameters = {"seed": 1, "parameters": {"cache_prompt": False}}
        return {"model": str(MODEL), **parameters, "options": {"n_ctx": 4096, "n_threads": 1}}


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

    @pytest.mark.xfail(reason="the model repeats the schema where a tool has no parameters")
    def test_tool_calling_with_no_arguments(self, model):
        super().test_tool_calling_with_no_arguments(model)
