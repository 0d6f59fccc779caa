"""Recorded conversations of coding agents, sent again: from the second turn on, prompts are in the
cache, whatever the template does with reasoning and with the order of roles.

`record_agents.py` writes the recordings.
"""

from __future__ import annotations

import json
import pathlib
import urllib.request
from typing import Any, Dict, List, Tuple

import pytest
from conftest import MODELS, Server
from conversations import FOLDER, load

MODEL = f"agent={MODELS / 'agent.gguf'}"
SHARE = 0.95
# The requests of each task.
TURNS = 4
# As strict templates do: a system message stands at the beginning.
STRICT = """{%- for message in messages if message.role != 'tool' %}
    {%- if message.role == 'system' and not loop.first %}{{ raise_exception('late system') }}{% endif %}
{%- endfor %}
"""
ASSISTANT = "{{- '<|im_start|>assistant' }}"
# As templates of Qwen3 do: reasoning is kept since the last message of the user.
KEPT = ASSISTANT + """
        {%- set task = namespace(last=0) %}
        {%- for other in messages %}
            {%- if other.role == 'user' %}{% set task.last = loop.index0 %}{% endif %}
        {%- endfor %}
        {%- if message.reasoning_content and loop.index0 > task.last %}
            {{- '\\n<think>\\n' + message.reasoning_content + '\\n</think>\\n' }}
        {%- endif %}"""


def template(kind: str, folder: pathlib.Path) -> List[str]:
    """The options for a template of this kind."""
    if kind == "plain":
        return []
    server = Server(MODEL)
    source = server.post("/v1/template", {"model": "agent"})[1]["chat_template"]
    server.stop()
    assert ASSISTANT in source
    file = folder / "template.jinja"
    file.write_text(STRICT + source if kind == "strict" else source.replace(ASSISTANT, KEPT))
    return ["--chat-template", str(file)]


def use(route: str, reply: Dict[str, Any]) -> Tuple[int, int]:
    """The tokens of a prompt, and those that were in the cache."""
    usage = reply["usage"]
    if route == "/v1/messages":
        cached = usage["cache_read_input_tokens"]
        return usage["input_tokens"] + cached, cached
    if route == "/v1/responses":
        return usage["input_tokens"], usage["input_tokens_details"]["cached_tokens"]
    return usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]


@pytest.mark.parametrize(
    "agent, kind",
    [
        ("claude", "plain"),
        ("codex", "plain"),
        ("opencode", "plain"),
        ("claude", "strict"),
        ("codex", "strips"),
        ("claude", "strips"),
    ],
)
def test_prompts_are_in_the_cache(tmp_path: pathlib.Path, agent: str, kind: str) -> None:
    route, requests = load(agent)
    assert len(requests) >= 15
    options = template(kind, tmp_path)
    server = Server(MODEL, "--n-ctx", "32768", "--parallel", "2", *options)
    uses = []
    for request in requests:
        limit = "max_output_tokens" if route == "/v1/responses" else "max_tokens"
        body = {**request, "stream": False, limit: 2}
        body.pop("stream_options", None)
        data = json.dumps(body).encode()
        asked = urllib.request.Request(server.url + route, data)
        with urllib.request.urlopen(asked, timeout=600) as response:
            uses.append(use(route, json.loads(response.read())))
    assert server.stop() == 0
    for index, (prompt, cached) in enumerate(uses[1:], 1):
        # A new task: without the reasoning of the task before, all since its beginning is another
        # text. The last token of that prompt is the step of the scripted model.
        is_stripped = kind == "strips" and index % TURNS == 0
        kept = uses[index - TURNS][0] - 1 if is_stripped else SHARE * prompt
        assert cached >= min(kept, SHARE * prompt), (index, uses)
