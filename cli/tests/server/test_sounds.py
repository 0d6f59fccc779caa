"""Sounds in the protocols that have them, by the official clients, for a model with a projector of sound.

The model and the projector have random weights: a reply changes with all that the model gets.
"""

from __future__ import annotations

import base64
import json
import pathlib
import subprocess
from typing import Any, Dict, Iterator, Tuple

import pytest
from conftest import MODELS, PROGRAM, Server
from picture_files import png
from sound_files import tone

anthropic = pytest.importorskip("anthropic")
ollama = pytest.importorskip("ollama")
openai = pytest.importorskip("openai")

FOLDER = MODELS / "sounds" / "qwen2a"
TEXT = "what is it"


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


def respond(server: Server, file: bytes, stream: bool = False) -> Tuple[str, int]:
    """As `ask`, by responses."""
    content = [part(file), {"type": "input_text", "text": TEXT}]
    request: Any = {
        "model": "qwen2a",
        "temperature": 0,
        "max_output_tokens": 16,
        "input": [{"role": "user", "content": content}],
    }
    create = client_of(server).responses.create
    reply = list(create(**request, stream=True))[-1].response if stream else create(**request)
    return reply.output_text, reply.usage.input_tokens


def test_responses_take_sounds(hearing: Server, server: Server) -> None:
    low, high = ask(hearing, part(LOW)), ask(hearing, part(HIGH))
    assert [respond(hearing, file) for file in [LOW, HIGH]] == [low, high]
    assert respond(hearing, HIGH, stream=True) == high
    counted = client_of(hearing).responses.input_tokens.count(
        model="qwen2a",
        input=[
            {"role": "user", "content": [part(LOW), {"type": "input_text", "text": TEXT}]},
        ],
    )
    assert counted.input_tokens == low[1]
    # A response is continued with its sound.
    create = client_of(hearing).responses.create
    options: Any = {"model": "qwen2a", "temperature": 0, "max_output_tokens": 16}
    content = [part(LOW), {"type": "input_text", "text": TEXT}]
    first = create(input=[{"role": "user", "content": content}], **options)
    kept = create(previous_response_id=first.id, input="and now", **options)
    assert kept.usage.input_tokens > low[1]
    with pytest.raises(openai.BadRequestError) as refused:
        respond(hearing, b"hello")
    expected = "input[0].content[0].input_audio.data: not a sound; WAV, MP3 and FLAC are supported"
    assert expected in str(refused.value)
    # A model of text gets a text.
    items = [{"role": "user", "content": [part(LOW), {"type": "input_text", "text": TEXT}]}]
    reply = client_of(server).responses.with_raw_response.create(model="text", input=items)
    assert reply.headers["x-llb-diagnostics"] == "part_replaced=input[0].content[0]"


def test_ollama_takes_sounds_among_images(hearing: Server, server: Server) -> None:
    """As in Ollama, whose clients have no other place for them."""
    client = ollama.Client(host=hearing.url)
    options = {"temperature": 0, "num_predict": 16}

    def chat(file: bytes) -> Tuple[str, int]:
        message = {"role": "user", "content": TEXT, "images": [file]}
        reply = client.chat("qwen2a", messages=[message], options=options)
        return reply.message.content, reply.prompt_eval_count

    def generate(file: bytes) -> Tuple[str, int]:
        reply = client.generate("qwen2a", TEXT, images=[file], options=options)
        return reply.response, reply.prompt_eval_count

    assert [chat(LOW), generate(HIGH)] == [ask(hearing, part(LOW)), ask(hearing, part(HIGH))]
    capabilities = client.show("qwen2a").capabilities
    assert "audio" in capabilities and "vision" not in capabilities
    with pytest.raises(ollama.ResponseError) as refused:
        chat(LOW[:40])
    assert "messages[0].images[0]: a damaged sound" in str(refused.value)
    # A picture is a text for this model, and a sound for a model of text.
    assert chat(png(255, 20, 20))[1] < 100
    body = {
        "model": "text",
        "stream": False,
        "messages": [
            {"role": "user", "content": TEXT, "images": [base64.b64encode(LOW).decode()]}
        ],
    }
    status, reply, _ = server.post("/api/chat", body)
    assert status == 200
    problem = "messages[0].images[0]: the model takes no sound"
    assert problem in [each["message"] for each in reply["diagnostics"]]


def test_messages_of_anthropic_have_no_sounds(hearing: Server) -> None:
    client = anthropic.Anthropic(base_url=hearing.url, api_key="x", max_retries=0)
    for block in [part(LOW), {"type": "audio", "source": {}}]:
        content: Any = [{"type": "text", "text": TEXT}, block]
        with pytest.raises(anthropic.BadRequestError) as refused:
            client.messages.create(
                model="qwen2a", max_tokens=1, messages=[{"role": "user", "content": content}]
            )
        expected = "messages[0].content[1].type: Anthropic's messages have no sounds; send them to"
        assert expected in str(refused.value)


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
    wrong = tmp_path / "a.wav"
    wrong.write_text("no sound")
    command = [PROGRAM, "run", str(FOLDER / "model.gguf"), "-p", TEXT, "--system", "Be brief."]
    media = ["--audio", str(tmp_path / "low.wav"), "--audio", str(wrong), "--n-ctx", "2048"]
    done = subprocess.run([*command, *media], capture_output=True, text=True, timeout=300)
    assert done.returncode == 1 and f"{wrong}: not a sound" in done.stderr, done.stderr


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
