"""Sounds in chat completions, by the official client, for a model with a projector of sound.

The model and the projector have random weights: a reply changes with all that the model gets.
"""

from __future__ import annotations

import base64
import io
import json
import math
import pathlib
import struct
import subprocess
import wave
from typing import Any, Dict, Iterator, Tuple

import pytest
from conftest import MODELS, PROGRAM, Server

openai = pytest.importorskip("openai")

FOLDER = MODELS / "sounds" / "qwen2a"
TEXT = "what is it"


def tone(frequency: int) -> bytes:
    """A WAV file of 25 seconds."""
    samples = [
        round(9000 * math.sin(math.tau * frequency * at / 16000)) for at in range(25 * 16000)
    ]
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16000)
        file.writeframes(struct.pack(f"<{len(samples)}h", *samples))
    return buffer.getvalue()


LOW, HIGH = tone(200), tone(2000)


@pytest.fixture(scope="module")
def hearing() -> Iterator[Server]:
    running = Server(f"qwen2a={FOLDER / 'model.gguf'}", "--projector", "auto")
    yield running
    assert running.stop() == 0, running.log


def part(file: bytes) -> Dict[str, Any]:
    data = base64.b64encode(file).decode()
    return {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}


def ask(server: Server, content: Any, model: str = "qwen2a") -> Tuple[str, int]:
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="x")
    messages: Any = [{"role": "user", "content": [content, {"type": "text", "text": TEXT}]}]
    reply = client.chat.completions.create(
        model=model, messages=messages, temperature=0, max_tokens=16
    )
    assert reply.usage
    return reply.choices[0].message.content or "", reply.usage.prompt_tokens


def test_a_model_hears(hearing: Server) -> None:
    low, high = ask(hearing, part(LOW)), ask(hearing, part(HIGH))
    assert low[0] != high[0] and low[1] == high[1] > 750
    entry = json.loads(hearing.get("/v1/models"))["data"][0]
    assert entry["capabilities"]["audio"] and not entry["capabilities"]["vision"]
    assert entry["architecture"]["input_modalities"] == ["text", "audio"]
    assert json.loads(hearing.get("/props"))["modalities"] == {"vision": False, "audio": True}
    # A picture is a text for this model.
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,"}}
    assert ask(hearing, image)[1] < 100


def test_a_bad_sound_names_its_part(hearing: Server) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        ask(hearing, part(b"hello"))
    path = "messages[0].content[0].input_audio.data"
    assert f"{path}: not a sound; WAV, MP3 and FLAC are supported" in str(refused.value)


def test_the_projector_may_be_named() -> None:
    running = Server(
        f"qwen2a={FOLDER / 'model.gguf'}", "--projector", str(FOLDER / "mmproj-model.gguf")
    )
    try:
        assert json.loads(running.get("/props"))["modalities"] == {"vision": False, "audio": True}
    finally:
        assert running.stop() == 0, running.log


def test_the_terminal_takes_sounds(tmp_path: pathlib.Path) -> None:
    texts = []
    for name, file in [("low", LOW), ("high", HIGH)]:
        path = tmp_path / f"{name}.wav"
        path.write_bytes(file)
        command = [PROGRAM, "run", str(FOLDER / "model.gguf"), "-p", TEXT, "--audio", str(path)]
        options = ["--temperature", "0", "--max-tokens", "16", "--n-ctx", "2048"]
        done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        texts.append(done.stdout)
    assert texts[0] != texts[1]
