"""Sounds in chat completions and transcriptions, by the official client, for a model with a projector of sound.

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


def client_of(server: Server) -> Any:
    return openai.OpenAI(base_url=server.url + "/v1", api_key="x", max_retries=0)


def ask(server: Server, content: Any, text: str = TEXT) -> Tuple[str, int]:
    messages: Any = [{"role": "user", "content": [content, {"type": "text", "text": text}]}]
    reply = client_of(server).chat.completions.create(
        model="qwen2a", messages=messages, temperature=0, max_tokens=16
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


def test_a_model_transcribes(hearing: Server) -> None:
    instruction = "Transcribe the speech in this sound. Answer with the text alone."
    create = client_of(hearing).audio.transcriptions.create
    request: Any = {"model": "qwen2a", "file": ("low.wav", LOW), "extra_body": {"max_tokens": 16}}
    text, prompt_tokens = ask(hearing, part(LOW), instruction)
    made = create(**request)
    assert (made.text, made.usage.input_tokens) == (text, prompt_tokens)
    assert made.usage.total_tokens == prompt_tokens + made.usage.output_tokens
    assert create(**request, response_format="text") == text + "\n"
    events = list(create(**request, stream=True))
    assert [event.type for event in events[:-1]] == ["transcript.text.delta"] * (len(events) - 1)
    assert "".join(event.delta for event in events[:-1]) == events[-1].text == text
    assert events[-1].usage.input_tokens == prompt_tokens
    told = f"{instruction} It is in the language de. Names: Ada."
    made = create(**request, language="de", prompt="Names: Ada.")
    assert (made.text, made.usage.input_tokens) == ask(hearing, part(LOW), told)


def test_a_wrong_transcription_says_what_is_wrong(hearing: Server, server: Server) -> None:
    client_of(server).chat.completions.create(
        model="text", messages=[{"role": "user", "content": "a"}]
    )

    def refused(server: Server, status: int, message: str, **request: Any) -> None:
        request = {"model": "qwen2a", "file": ("low.wav", LOW), **request}
        with pytest.raises(openai.APIStatusError) as error:
            client_of(server).audio.transcriptions.create(**request)
        assert (error.value.status_code, message in str(error.value)) == (status, True), error

    refused(hearing, 400, "file: not a sound; WAV, MP3 and FLAC", file=("a.wav", b"hello"))
    refused(hearing, 400, "file: is missing, or empty", file=("a.wav", b""))
    refused(hearing, 400, "response_format: expected", response_format="srt")
    refused(server, 400, "model: takes no sound; serve a model that hears", model="text")
    route = "/v1/audio/transcriptions"
    assert hearing.post(route, {"model": "qwen2a"})[0] == 415
    form = {"Content-Type": "multipart/form-data; boundary=b"}
    for body in [b"", b"--b\r\n", b"--b\r\nContent-Disposition: form-data; name=file\r\n\r\nRIFF"]:
        head = [f"POST {route} HTTP/1.1", "host: localhost", "connection: close"]
        head += [f"{name}: {value}" for name, value in form.items()]
        head += [f"content-length: {len(body)}", "", ""]
        answer = hearing.raw("\r\n".join(head).encode() + body)
        assert answer.startswith(b"HTTP/1.1 400 "), (body, answer)
