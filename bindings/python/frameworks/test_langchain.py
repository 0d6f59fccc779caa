"""LangChain's own standard tests on `ChatLlb`: `make test-python-frameworks`."""

import os
from pathlib import Path

import pytest
from langchain_core.exceptions import OutputParserException
from langchain_tests.integration_tests import ChatModelIntegrationTests, EmbeddingsIntegrationTests
from langchain_tests.unit_tests import ChatModelUnitTests, EmbeddingsUnitTests
from pydantic import BaseModel

from llb.langchain import ChatLlb, LlbEmbeddings

MODEL = Path(os.environ.get("LLB_MODELS", "")) / "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"


class Shared:
    @property
    def chat_model_class(self):
        return ChatLlb

    @property
    def chat_model_params(self):
        # Replies depend on no other test: neither on its KV cache nor on the number of threads.
        parameters = {"seed": 2, "parameters": {"cache_prompt": False}}
        return {"model": str(MODEL), **parameters, "options": {"n_ctx": 4096, "n_threads": 1}}


class TestUnit(Shared, ChatModelUnitTests):
    pass


@pytest.mark.skipif(not MODEL.is_file(), reason=f"no {MODEL.name} in LLB_MODELS")
class TestIntegration(Shared, ChatModelIntegrationTests):
    @property
    def supports_json_mode(self):
        return True

    @pytest.mark.xfail(reason="the model, of 0.5 billion parameters, often calls no tool by itself")
    def test_agent_loop(self, model):
        super().test_agent_loop(model)

    @pytest.mark.xfail(reason="the model often repeats the schema where a tool has no parameters")
    def test_tool_calling_with_no_arguments(self, model):
        super().test_tool_calling_with_no_arguments(model)


EMBEDDING_MODEL = Path(os.environ.get("LLB_TEST_MODELS", "")) / "embedding.gguf"


class SharedEmbeddings:
    @property
    def embeddings_class(self):
        return LlbEmbeddings

    @property
    def embedding_model_params(self):
        return {"model": str(EMBEDDING_MODEL), "options": {"n_threads": 1}}


class TestEmbeddingsUnit(SharedEmbeddings, EmbeddingsUnitTests):
    pass


@pytest.mark.skipif(not EMBEDDING_MODEL.is_file(), reason="no embedding.gguf in LLB_TEST_MODELS")
class TestEmbeddingsIntegration(SharedEmbeddings, EmbeddingsIntegrationTests):
    def test_prefixes_and_parameters(self, model):
        fields = {**self.embedding_model_params, "parameters": {"dimensions": 4}}
        prefixed = LlbEmbeddings(query_prefix="the ", document_prefix="a ", **fields)
        plain = LlbEmbeddings(**fields)
        assert prefixed.embed_query("cat") == pytest.approx(plain.embed_query("the cat"), abs=1e-4)
        (document,) = prefixed.embed_documents(["cat"])
        assert document == pytest.approx(plain.embed_query("a cat"), abs=1e-4)
        assert len(document) == 4 and plain.embed_documents([]) == []
        for each in (prefixed, plain):
            each.close()


@pytest.mark.parametrize("title", ["a schema", "a model"])
def test_a_structured_reply_that_is_cut_off_is_an_error(models, title):
    class Joke(BaseModel):
        setup: str

    schema = Joke if title == "a model" else {"title": "joke", **Joke.model_json_schema()}
    chat = ChatLlb(model=models("text"), max_tokens=3)
    with pytest.raises(OutputParserException, match="cut off"):
        chat.with_structured_output(schema).invoke("A joke")
    raw = chat.with_structured_output(schema, include_raw=True).invoke("A joke")
    assert raw["parsed"] is None and "cut off" in str(raw["parsing_error"])
    chat.close()
