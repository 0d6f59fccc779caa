#!/usr/bin/env python3
"""Shows a language model pictures of handwritten digits, and counts its right answers.

    scripts/digits.py LIBRARY MODEL FOLDER

The pictures are those of scikit-learn. The projector, a file of the type "mlp", is made here for
MODEL: its encoder takes a picture of 8 by 8 pixels as one patch, the first layer of its projection
is random, and the last one is fitted by least squares, so that a picture becomes the embedding of
the word for its digit in MODEL. So an answer is right only if the whole path is: the decoder of the
file, scaling, normalisation, the encoder, the place in the prompt, the decode of an embedding.

The pictures of the fit are not those that are asked about. A second projector, fitted to shuffled
digits, shows what chance is. Needs the packages numpy, scikit-learn, gguf and Pillow; `make digits`
installs them. Exit status: 0, or 1 with fewer than MIN right answers, or with more than MAX_CHANCE
of CHANCES by the second projector.
"""

import base64
import ctypes
import io
import json
import sys
from pathlib import Path

import gguf
import numpy
from PIL import Image
from sklearn.datasets import load_digits

WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
SIDE, WIDTH, INNER = 8, 256, 1024
EPSILON = 1e-5
# Pictures of each digit that are asked about.
ASKED = 10
MIN = 80
CHANCES, MAX_CHANCE = 50, 15
# The texts before and after the picture.
QUESTION = "The digit is", " . Which digit is it? Answer with one digit."


def word_embeddings(model):
    """The embedding of each word, as a token of its own with a space before it."""
    reader = gguf.GGUFReader(model)
    field = reader.fields["tokenizer.ggml.tokens"]
    texts = [bytes(field.parts[index]).decode() for index in field.data]
    table = next(tensor for tensor in reader.tensors if tensor.name == "token_embd.weight")
    rows = [table.data[texts.index("Ġ" + word)] for word in WORDS]
    return numpy.stack(
        [gguf.quants.dequantize(row[None], table.tensor_type)[0] for row in rows]
    )


def gelu(numbers):
    return numbers / 2 * (1 + numpy.tanh(0.7978845608 * (numbers + 0.044715 * numbers**3)))


class Encoder:
    """The random part: of one patch, then the first layer of the projection."""

    def __init__(self, generator):
        draw = generator.standard_normal
        self.patch = draw((WIDTH, SIDE * SIDE)).astype("f4") / SIDE
        self.first = draw((INNER, WIDTH)).astype("f4") / numpy.sqrt(numpy.float32(WIDTH))
        self.bias = draw(INNER).astype("f4") / 2

    def features(self, pixels):
        """Of pictures with bytes as pixels."""
        states = (pixels / 127.5 - 1) @ self.patch.T
        states -= states.mean(axis=1, keepdims=True)
        states /= numpy.sqrt((states**2).mean(axis=1, keepdims=True) + EPSILON)
        return gelu(states @ self.first.T + self.bias)


def fitted(features, targets):
    """The matrix and the bias of the last layer, by least squares with a small weight decay."""
    whole = numpy.concatenate([features, numpy.ones((len(features), 1))], axis=1)
    gram = whole.T @ whole + 1.0 * numpy.eye(whole.shape[1])
    solution = numpy.linalg.solve(gram, whole.T @ targets)
    return solution[:-1].T.astype("f4"), solution[-1].astype("f4")


def write_projector(path, encoder, matrix, bias):
    """With the names and shapes of llama.cpp's converter. Its only layer that runs adds nothing."""
    writer = gguf.GGUFWriter(path, "clip")
    writer.add_string("clip.projector_type", "mlp")
    writer.add_bool("clip.has_vision_encoder", True)
    writer.add_bool("clip.use_gelu", True)
    for name, number in [
        ("image_size", SIDE),
        ("patch_size", SIDE),
        ("embedding_length", WIDTH),
        ("feed_forward_length", 1),
        ("projection_dim", len(bias)),
        ("block_count", 2),
        ("attention.head_count", 1),
    ]:
        writer.add_uint32(f"clip.vision.{name}", number)
    writer.add_float32("clip.vision.attention.layer_norm_epsilon", EPSILON)
    for name in ("image_mean", "image_std"):
        writer.add_array(f"clip.vision.{name}", [0.5] * 3)
    # The three colours of a grey picture are the same.
    patch = numpy.repeat(encoder.patch.reshape(WIDTH, 1, SIDE, SIDE), 3, axis=1) / 3
    tensors = {
        "v.patch_embd.weight": patch,
        "v.position_embd.weight": numpy.zeros((1, WIDTH)),
        "mm.0.weight": encoder.first,
        "mm.0.bias": encoder.bias,
        "mm.2.weight": matrix,
        "mm.2.bias": bias,
    }
    norms = ["v.pre_ln", "v.post_ln"]
    for layer in ("v.blk.0", "v.blk.1"):
        norms += [f"{layer}.ln1", f"{layer}.ln2"]
        for name in ("attn_q", "attn_k", "attn_v", "attn_out"):
            tensors[f"{layer}.{name}.weight"] = numpy.zeros((WIDTH, WIDTH))
            tensors[f"{layer}.{name}.bias"] = numpy.zeros(WIDTH)
        tensors[f"{layer}.ffn_up.weight"] = numpy.zeros((1, WIDTH))
        tensors[f"{layer}.ffn_up.bias"] = numpy.zeros(1)
        tensors[f"{layer}.ffn_down.weight"] = numpy.zeros((WIDTH, 1))
        tensors[f"{layer}.ffn_down.bias"] = numpy.zeros(WIDTH)
    for name in norms:
        tensors[f"{name}.weight"] = numpy.ones(WIDTH)
        tensors[f"{name}.bias"] = numpy.zeros(WIDTH)
    for name, numbers in tensors.items():
        writer.add_tensor(name, numpy.ascontiguousarray(numbers, dtype="f4"))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def picture(pixels):
    """A PNG file in a data URL."""
    file = io.BytesIO()
    Image.fromarray(pixels.reshape(SIDE, SIDE)).save(file, "PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


class Chat:
    """A chat of the library, by its C functions."""

    def __init__(self, library, options):
        self.library = ctypes.CDLL(library)
        text = ctypes.c_void_p
        for name, arguments in [
            ("llb_chat_create_with", [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p]),
            ("llb_chat_infer", [ctypes.c_void_p, ctypes.c_char_p]),
            ("llb_last_error", []),
        ]:
            function = getattr(self.library, name)
            function.restype, function.argtypes = text, arguments
        self.library.llb_string_free.argtypes = [text]
        self.library.llb_chat_destroy.argtypes = [text]
        self.chat = self.library.llb_chat_create_with(json.dumps(options).encode(), None, None)
        if not self.chat:
            raise SystemExit(self.taken(self.library.llb_last_error()))

    def taken(self, string):
        text = ctypes.cast(string, ctypes.c_char_p).value.decode()
        self.library.llb_string_free(string)
        return text

    def answer(self, url):
        before, after = [{"type": "text", "text": text} for text in QUESTION]
        part = {"type": "image_url", "image_url": {"url": url}}
        messages = [{"role": "user", "content": [before, part, after]}]
        request = {"messages": messages, "temperature": 0, "max_tokens": 8}
        reply = json.loads(
            self.taken(self.library.llb_chat_infer(self.chat, json.dumps(request).encode()))
        )
        if reply["type"] == "error":
            raise SystemExit(reply["error"]["message"])
        return reply["text"]

    def close(self):
        self.library.llb_chat_destroy(self.chat)


def digit_of(text):
    """The first digit in an answer, as a figure or a word."""
    places = [
        (place, digit)
        for digit, word in enumerate(WORDS)
        for place in (text.find(str(digit)), text.lower().find(word))
        if place >= 0
    ]
    return min(places)[1] if places else None


def main(library, model, folder):
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    digits = load_digits()
    pixels = numpy.round(digits.data * 255 / 16).astype("u1")
    asked = numpy.concatenate(
        [numpy.flatnonzero(digits.target == digit)[-ASKED:] for digit in range(10)]
    )
    others = numpy.setdiff1d(numpy.arange(len(pixels)), asked)
    generator = numpy.random.default_rng(5)
    encoder = Encoder(generator)
    words = word_embeddings(model)
    features = encoder.features(pixels[others].astype("f4"))
    generator.shuffle(asked)
    right = {}
    labels = digits.target[others]
    for name, given, count in [
        ("fitted", labels, len(asked)),
        ("shuffled", generator.permutation(labels), CHANCES),
    ]:
        path = folder / f"mmproj-{name}.gguf"
        matrix, bias = fitted(features, words[given])
        write_projector(path, encoder, matrix, bias)
        made = encoder.features(pixels[asked].astype("f4")) @ matrix.T + bias
        nearest = ((made[:, None] - words[None]) ** 2).sum(axis=2).argmin(axis=1)
        options = {"model": model, "projector": str(path), "n_ctx": 512, "tool_policy": "any"}
        chat = Chat(library, options)
        answers = [digit_of(chat.answer(picture(pixels[index]))) for index in asked[:count]]
        chat.close()
        right[name] = sum(int(a == digits.target[b]) for a, b in zip(answers, asked))
        found = int((nearest[:count] == digits.target[asked[:count]]).sum())
        print(f"{name}: {right[name]} of {count} answers are right; of the nearest words, {found}")
    return int(right["fitted"] < MIN or right["shuffled"] > MAX_CHANCE)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
