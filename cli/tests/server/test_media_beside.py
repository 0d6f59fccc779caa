"""Pictures and sounds in `llb serve` and in a llama.cpp server (PyPI: xllamacpp): the same files of
projectors, media and prompts have the same number of tokens, and in a greedy reply the likeliest
tokens have about the same probabilities.

The models and projectors have random weights: probabilities change with everything that the model
gets.
"""

from __future__ import annotations

import base64
import json
import math
import pathlib
from typing import Any, Dict, List, NamedTuple

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
# Seconds of tones: around the length of a window, and two windows. The fractions make odd numbers of
# samples.
TONES = [0.1, 0.5000625, 1, 29, 30, 30.0101875, 31]
# How far the logarithms of probabilities may differ. llama.cpp's attention adds up the values of a
# single token in 16 bits, in the order of their cells. That order depends on earlier requests: it
# changes the tokens after the first by up to 0.19, and without flash attention by less than 0.0001.
MAX_FIRST, MAX_LATER = 0.04, 0.3
# Known differences. The other server counts fewer places of a large picture; it seems to stop at
# its batch of 512. The servers convert sounds of other rates than 16 kHz by different filters.
OTHER = {
    "pictures/gemma4v": ["300x200"],
    "pictures/gemma4uv": ["300x200"],
    "sounds/meralion": ["wav at 8 kHz"],
    "sounds/qwen3a": ["wav at 8 kHz", "mp3 of two channels at 44.1 kHz"],
    "sounds/voxtral": ["wav at 8 kHz"],
    "sounds/gemma4a": ["wav at 8 kHz", "flac at 48 kHz", "mp3", "mp3 of two channels at 44.1 kHz"],
    "sounds/gemma4ua": ["wav at 8 kHz", "flac at 48 kHz", "mp3 of two channels at 44.1 kHz"],
}


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


def both() -> Dict[str, Any]:
    """Pictures with sounds."""
    seen, heard = pictures(), sounds()
    pairs = [("24x24", "wav 1 s"), ("37x91", "mp3"), ("160x40", "wav 29 s")]
    return {f"{see}, {hear}": [seen[see], heard[hear]] for see, hear in pairs}


PARTS = {"pictures": pictures, "sounds": sounds, "both": both}


class Answer(NamedTuple):
    prompt_tokens: int
    text: str
    # For each token of the reply: the logarithms of the probabilities of the likeliest, in order.
    likeliest: List[Dict[str, float]]


def answer(url: str, part: Any) -> Answer:
    parts = part if isinstance(part, list) else [part]
    content = [{"type": "text", "text": "see"}, *parts, {"type": "text", "text": "what is it"}]
    request = {"messages": [{"role": "user", "content": content}], "temperature": 0}
    # Later tokens of a random model may be as likely as others, but for the last bits.
    status, text = ask(
        url + CHATS, {**request, "max_tokens": 8, "logprobs": True, "top_logprobs": 20}
    )
    assert status == 200, text
    found = json.loads(text)
    choice = found["choices"][0]
    likeliest = [
        {top["token"]: top["logprob"] for top in token["top_logprobs"]}
        for token in choice["logprobs"]["content"]
    ]
    return Answer(found["usage"]["prompt_tokens"], choice["message"]["content"], likeliest)


def differences(ours: Answer, theirs: Answer) -> List[float]:
    """For each token, up to the first one that differs: how far the five likeliest tokens are from
    those of the other server."""
    found: List[float] = []
    for here, there in zip(ours.likeliest, theirs.likeliest):
        five = list(here.items())[:5]
        found.append(max(abs(each - there.get(token, -math.inf)) for token, each in five))
        if next(iter(here)) != next(iter(there)):
            return found
    is_longer = len(ours.likeliest) != len(theirs.likeliest)
    return found + [math.inf] * is_longer


@pytest.mark.parametrize(
    "kind",
    [f"{folder}/{name}" for folder in PARTS for name in projectors(folder)],
)
def test_counts_and_probabilities_are_those_of_llama_cpps_server(kind: str) -> None:
    check_version()
    model, projector = f"{kind}/model", f"{kind}/mmproj-model"
    ours = Server(f"{MODELS / model}.gguf", "--projector", "auto", "--n-ctx", str(N_CTX))
    theirs = LlamaServer(model, "chat", N_CTX, projector)
    try:
        parts = PARTS[kind.split("/")[0]]()
        found = {
            name: (answer(ours.url, part), answer(theirs.url, part)) for name, part in parts.items()
        }
        known = OTHER.get(kind, [])
        other: Dict[str, Any] = {}
        for name, (here, there) in found.items():
            first, *later = differences(here, there)
            is_counted = here.prompt_tokens == there.prompt_tokens
            is_known = name in known and (is_counted or kind.startswith("pictures"))
            is_near = first <= MAX_FIRST and all(each <= MAX_LATER for each in later)
            if not is_known and not (is_counted and is_near):
                other[name] = [here.prompt_tokens, there.prompt_tokens, first, *later]
        assert not other, other
        # They are not the same reply to everything.
        assert len({here.text for here, _ in found.values()}) > 1, found
    finally:
        theirs.stop()
        assert ours.stop() == 0, ours.log
