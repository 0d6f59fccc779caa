"""Sounds in messages, in every form that Python programs have them in."""

import base64
import io
import math
import pathlib
import re
import struct
import wave

import pytest

import llb
from conftest import skip
from llb._media import with_media


@pytest.fixture(scope="module")
def hearing(models):
    """Options of a chat that takes sound."""
    folder = pathlib.Path(models("text")).parent / "sounds" / "qwen2a"
    if not folder.exists():
        skip(f"{folder} does not exist")
    path = str(folder / "model.gguf")
    return {"path": path, "projector": "auto", "tool_policy": "any", "n_ctx": 2048, "n_threads": 1}


def tone(frequency):
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


def ask(sound):
    return [{"role": "user", "content": [sound, {"type": "text", "text": "what is it"}]}]


def test_every_form_of_a_sound_is_the_same(hearing, tmp_path):
    low = tone(200)
    path = tmp_path / "low.wav"
    path.write_bytes(low)
    data = base64.b64encode(low).decode()
    forms = [
        {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}},
        {"type": "audio", "path": str(path)},
        {"type": "audio", "path": path},
        {"type": "audio", "audio": low},
        {"type": "audio", "audio": bytearray(low)},
    ]
    options = {"temperature": 0, "max_tokens": 12}
    with llb.Chat(**hearing) as chat:
        texts = [chat.create(ask(form), **options)["text"] for form in forms]
        assert len(set(texts)) == 1 and len(texts[0]) == 12
        assert (
            chat.create(ask({"type": "audio", "audio": tone(2000)}), **options)["text"] != texts[0]
        )
    info = llb.model_info(hearing["path"])
    assert info["input_modalities"] == ["text", "audio"]
    with llb.Model(**hearing, n_parallel=1) as model:
        used = model.create(ask(forms[-1]), **options)["usage"]["prompt_tokens"]
        assert used > 750
        assert model.count_tokens(ask(forms[-1])) == used


@pytest.mark.parametrize(
    "part, message",
    [
        ({"type": "audio"}, "messages[0].content[0]: expected one of path and audio"),
        ({"type": "audio", "path": "a", "audio": b"b"}, "expected one of path and audio"),
        ({"type": "audio", "audio": "a.wav"}, "messages[0].content[0].audio: expected bytes; name"),
    ],
)
def test_what_is_no_sound(part, message):
    with pytest.raises(TypeError, match=re.escape(message)):
        with_media(ask(part))


def test_a_bad_sound_is_an_error_of_its_part(hearing):
    with llb.Chat(**hearing) as chat:
        message = r"messages\[0\].content\[0\].input_audio.data: not a sound"
        with pytest.raises(llb.LlbError, match=message):
            chat.create(ask({"type": "audio", "audio": b"hello"}))
