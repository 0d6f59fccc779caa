"""Pictures and sounds in `llb serve` and in a llama.cpp server (PyPI: xllamacpp): the same files of
projectors, media and prompts have the same number of tokens and the same greedy replies.

The models and projectors have random weights: a reply changes with everything that the model gets.
"""

from __future__ import annotations

import base64
import json
import pathlib
from typing import Any, Dict, List, Tuple

import pytest
from conftest import MODELS, Server
from picture_files import png
from sound_files import tone
from test_llama_server import CHATS, LlamaServer, ask, check_version

SOUNDS = pathlib.Path(__file__).parents[3] / "tests/data/sounds.json"
N_CTX = 4096
# One that is enlarged, some of other ratios, and one that is reduced.
PICTURES = [(24, 24), (1, 1), (37, 91), (160, 40), (300, 200)]
# Files of tests/data/sounds.json.
FILES = [
    "wav PCM_16",
    "wav extensible",
    "wav at 8 kHz",
    "flac of two channels",
    "flac at 48 kHz",
    "mp3",
    "mp3 of two channels at 44.1 kHz",
]
# Seconds of tones: around the length of a window, and two windows.
TONES = [1, 29, 30, 31]


def projectors(folder: str) -> List[str]:
    return sorted(path.name for path in (MODELS / folder).iterdir())


def pictures() -> Dict[str, Any]:
    parts = {}
    for width, height in PICTURES:
        data = base64.b64encode(png(255, 90, 20, width, height)).decode()
        url = {"url": f"data:image/png;base64,{data}"}
        parts[f"{width}x{height}"] = {"type": "image_url", "image_url": url}
    return parts


def sounds() -> Dict[str, Any]:
    cases = json.loads(SOUNDS.read_text("utf-8"))["cases"]
    files = [(case["name"], case["file"]) for case in cases if case["name"] in FILES]
    files += [(f"wav {each} s", base64.b64encode(tone(300, each)).decode()) for each in TONES]
    return {
        # A name begins with the format.
        name: {"type": "input_audio", "input_audio": {"data": data, "format": name.split()[0]}}
        for name, data in files
    }


def reply(url: str, part: Any) -> Tuple[int, str]:
    content = [{"type": "text", "text": "see"}, part, {"type": "text", "text": "what is it"}]
    messages = [{"role": "user", "content": content}]
    # Later tokens of a random model may be as likely as others, but for the last bits.
    status, text = ask(url + CHATS, {"messages": messages, "temperature": 0, "max_tokens": 8})
    assert status == 200, text
    answer = json.loads(text)
    return answer["usage"]["prompt_tokens"], answer["choices"][0]["message"]["content"]


@pytest.mark.parametrize(
    "kind",
    [f"{folder}/{name}" for folder in ["pictures", "sounds"] for name in projectors(folder)],
)
def test_counts_and_replies_are_those_of_llama_cpps_server(kind: str) -> None:
    check_version()
    model, projector = f"{kind}/model", f"{kind}/mmproj-model"
    ours = Server(f"{MODELS / model}.gguf", "--projector", "auto", "--n-ctx", str(N_CTX))
    theirs = LlamaServer(model, "chat", N_CTX, projector)
    try:
        parts = pictures() if kind.startswith("pictures") else sounds()
        found = {
            name: (reply(ours.url, part), reply(theirs.url, part)) for name, part in parts.items()
        }
        other = {name: pair for name, pair in found.items() if pair[0] != pair[1]}
        assert not other, other
        # They are not the same reply to everything.
        assert len({text for (_, text), _ in found.values()}) > 1, found
    finally:
        theirs.stop()
        assert ours.stop() == 0, ours.log
