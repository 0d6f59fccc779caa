"""Tests several models: loaded by requests, and unloaded when idle or for another model."""

from __future__ import annotations

import json
import signal
import threading
from typing import Any, Dict, Iterator

import pytest
from conftest import EXPECTED, HANGS, MODELS, SHIFT, Server
from test_http import COMPLETIONS, GOOD, endless, open_request


def paths(*names: str) -> list:
    return [str(MODELS / f"{name}.gguf") for name in names]


def loaded(server: Server) -> set:
    models = json.loads(server.get("/v1/models"))["data"]
    return {model["id"] for model in models if model["loaded"]}


def ask(server: Server, model: str) -> Any:
    status, reply, _ = server.post(COMPLETIONS, {**GOOD, "model": model, "max_tokens": 400})
    assert status == 200, reply
    return reply["choices"][0]["message"]["content"]


def of_model(server: Server, metric: str, model: str) -> int:
    line = f'{metric}{{model="{model}"}} '
    return int(server.get("/metrics").split(line)[1].split("\n")[0])


@pytest.fixture
def single() -> Iterator[Server]:
    """A server with room for one of its two models."""
    server = Server(*paths("text", "long"), "--max-loaded", "1", *SHIFT)
    yield server
    server.stop(signal.SIGKILL)


def test_a_request_loads_its_model(single: Server) -> None:
    assert loaded(single) == {"text"}
    assert ask(single, "long") == EXPECTED["long"]
    assert loaded(single) == {"long"}
    assert ask(single, "text") == EXPECTED["text"]
    assert loaded(single) == {"text"}
    assert single.metric("llb_model_loads_total") == 3
    # A request that needs only the vocabulary does the same.
    assert single.post("/v1/explain", {**GOOD, "model": "long"})[0] == 200
    assert loaded(single) == {"long"}
    single.wait_for_line("loaded long in")


def test_the_model_of_the_oldest_request_is_unloaded() -> None:
    server = Server(*paths("text", "long", "reasoning"), "--max-loaded", "2")
    for name in ["text", "long", "text", "reasoning"]:
        ask(server, name)
    assert loaded(server) == {"text", "reasoning"}
    assert server.stop() == 0


def test_models_share_the_memory_that_is_permitted() -> None:
    """A single model may take more."""
    server = Server(*paths("text", "reasoning", "long"), "--max-memory", "1")
    ask(server, "reasoning")
    assert loaded(server) == {"text", "reasoning"}
    ask(server, "long")
    assert loaded(server) == {"long"}
    ask(server, "text")
    assert loaded(server) == {"text"}
    assert server.stop() == 0


def test_an_idle_model_is_unloaded() -> None:
    server = Server(*paths("text"), "--unload-after", "1")
    server.wait_for("llb_model_loaded", 0)
    assert ask(server, "text") == EXPECTED["text"]
    assert server.metric("llb_model_loads_total") == 2
    server.wait_for("llb_model_loaded", 0)
    assert server.stop() == 0


def test_a_model_in_use_is_not_unloaded() -> None:
    server = Server(*paths("long"), "--unload-after", "1", *SHIFT)
    connection = open_request(server, endless(stream=True))
    server.wait_for("llb_requests_running", 1)
    # Waits until the next check for idle models.
    for _ in range(4):
        assert server.metric("llb_requests_running") == 1
        assert server.metric("llb_model_loads_total") == 1
        assert loaded(server) == {"long"}
        threading.Event().wait(0.5)
    connection.close()
    server.wait_for("llb_model_loaded", 0)
    assert server.stop() == 0


def test_a_request_that_waits_for_a_load_can_leave(single: Server) -> None:
    ask(single, "long")
    running = open_request(single, endless(model="long"))
    single.wait_for("llb_requests_running", 1)
    waiting = open_request(single, {**GOOD, "model": "text"})
    single.wait_for("llb_requests_waiting", 1)
    # This request came later, so it waits after the one for the other model.
    later = open_request(single, endless(model="long"))
    single.wait_for("llb_requests_waiting", 2)
    assert of_model(single, "llb_requests_running", "long") == 1
    waiting.close()
    # The request for the other model is gone, so the later one runs beside the first.
    single.wait_for("llb_requests_running", 2)
    assert of_model(single, "llb_model_loads_total", "text") == 1
    running.close()
    later.close()
    single.wait_for("llb_requests_running", 0)
    assert ask(single, "text") == EXPECTED["text"]


def test_no_model_is_starved(single: Server) -> None:
    """Even if the clients never pause, each of two models gets its turn."""
    is_over = threading.Event()
    counts: Dict[str, int] = {"text": 0, "long": 0}
    failures = []

    def client(model: str) -> None:
        while not is_over.is_set():
            try:
                assert ask(single, model) == EXPECTED[model]
                counts[model] += 1
                if all(count >= 6 for count in counts.values()):
                    is_over.set()
            except Exception as error:
                failures.append(error)
                is_over.set()

    clients = [threading.Thread(target=client, args=(name,)) for name in list(counts) * 3]
    for each in clients:
        each.start()
    for each in clients:
        each.join(HANGS)
    assert not failures and is_over.is_set(), (failures, counts)
    single.wait_for("llb_requests_waiting", 0)


def test_a_model_that_cannot_be_loaded(tmp_path: Any) -> None:
    """Requests for that model fail; others do not."""
    whole = (MODELS / "long.gguf").read_bytes()
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(whole)
    server = Server(*paths("text"), str(broken))
    # The server has already read the header.
    broken.write_bytes(whole[: len(whole) // 2])
    statuses = []

    def ask_broken() -> None:
        statuses.append(server.post(COMPLETIONS, {**GOOD, "model": "broken"})[0])

    threads = [threading.Thread(target=ask_broken) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert statuses == [500] * 5
    assert ask(server, "text") == EXPECTED["text"]
    # The model can be loaded again later.
    broken.write_bytes(whole)
    assert ask(server, "broken") == EXPECTED["long"]
    assert server.stop() == 0


def test_the_only_model_answers_to_any_name() -> None:
    server = Server(*paths("text"))
    try:
        for model in ["gpt-5", None]:
            status, reply, _ = server.post(COMPLETIONS, {**GOOD, "model": model, "max_tokens": 1})
            assert (status, reply["model"]) == (200, "text")
        status, _, _ = server.post("/v1/embeddings", {"model": "gpt-5", "input": "x"})
        assert status == 404, "no model makes vectors"
    finally:
        server.stop(signal.SIGKILL)
