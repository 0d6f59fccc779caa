#!/usr/bin/env python3
"""Writes tests/data/tokenizers.json: tokenizer.json files and the ids of texts.

    scripts/tokenizer-ids.py [--write]

Each case has a small tokenizer.json with the pipeline of a family of models, and texts with the ids
that the package tokenizers gives them (0.23.2 wrote the file). A text may have the spelling of a
special token, which the package reads as that token. Without --write, the ids are compared.
"""

import argparse
import json
import pathlib
import sys

from tokenizers import AddedToken, Regex, Tokenizer
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

DATA = pathlib.Path(__file__).parent.parent / "tests/data/tokenizers.json"

# What the vocabularies are trained on.
CORPUS = [
    "The quick brown fox jumps over the lazy dog, 12345 times.",
    "def main():\n    print('Hello, world!')\n\treturn {\"a\": [1, 2, 3]}\n",
    "Grüße aus Köln: naïve façade, 東京 and Привет мир.",
    "<div>It's they're we'll I'd</div> && x != y || z <= 0.5e-3",
] * 4

# GPT-2's, Qwen's and Llama 3's words.
QWEN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LLAMA = QWEN.replace(r"\p{N}|", r"\p{N}{1,3}|")
# DeepSeek's: several expressions, one after another.
DEEPSEEK = [
    r"[\r\n]", r"\s?[A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6]+", r"\s?[!-/:-~]+", r"\s+$",
    r"[\u4e00-\u9fa5]+",
]

TEXTS = [
    "The quick brown fox, 12345 times: na\u00efve \u6771\u4eac \U0001f600\n\tif (x == 0) { return \"ok\"; }",
    "Hello, world!",
    " leading and trailing ",
    "a  b   c\n\n\nd\r\n e",
    "don't WE'LL it's",
    "1234567890 3.14",
    "cafe\u0301 \ufb01 \u212b",
    "\u0000\u007f\u00a0\u200b\u2028",
    "<s>Hello<e> world<tool> x",
    "<s><s> a<e>",
    "a <tool> b<tool>\nc",
    "x<pad> y",
    "\u2581under \u2581",
    "it'\u017f I'LL \u212aelvin",
    "a \u3000\u3000b\u0085c\t\t\td",
    "if x:\n        return  y\n\n\n    z",
    "<tool><tools><toolss>",
    "no\u2581special",
]


def byte_level(pattern, normalizer=None):
    tokenizer = Tokenizer(models.BPE(ignore_merges=pattern == LLAMA))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=420, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def gpt2():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def of_words(*steps):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(list(steps))
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def sentence_piece(normalizer, pre_tokenizer):
    """A vocabulary with tokens for bytes, as of Llama 2 and Gemma."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizer
    if pre_tokenizer is not None:
        tokenizer.pre_tokenizer = pre_tokenizer
    special = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=420, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator([text.replace("\n", " ") for text in CORPUS], trainer)
    # The special tokens of the trainer are added tokens. Those of bytes must not be.
    document = json.loads(tokenizer.to_str())
    document["added_tokens"] = document["added_tokens"][:1]
    document["decoder"] = {"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
        {"type": "ByteFallback"}, {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0},
    ]}
    return Tokenizer.from_str(json.dumps(document))


def with_added(tokenizer):
    special = [AddedToken(text, special=True, normalized=False) for text in ["<s>", "<e>"]]
    tokenizer.add_special_tokens([*special, AddedToken("<pad>", rstrip=True, normalized=False)])
    tokens = [AddedToken("<tool>", lstrip=True, normalized=False)]
    tokenizer.add_tokens([*tokens, AddedToken("<tools>", normalized=False)])
    return tokenizer


def with_spaces(tokenizer):
    """Added tokens for runs of spaces, which are searched for in normalized text, as of Phi."""
    tokenizer.add_tokens([AddedToken(" " * count) for count in (8, 4, 2)])
    return tokenizer


def tokenizers():
    yield "gpt-2", gpt2()
    yield "qwen", byte_level(QWEN, normalizers.NFC())
    yield "llama-3", byte_level(LLAMA)
    prepend = [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
    yield "llama-2", sentence_piece(normalizers.Sequence(prepend), None)
    first = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    yield "llama-2 first", sentence_piece(normalizers.NFKC(), first)
    always = pre_tokenizers.Metaspace(prepend_scheme="always")
    yield "llama-2 always", sentence_piece(normalizers.Sequence([]), always)
    split = pre_tokenizers.Split(" ", behavior="merged_with_previous")
    yield "gemma", sentence_piece(normalizers.Replace(" ", "\u2581"), split)
    bytes_only = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    isolated = [pre_tokenizers.Split(Regex(words), behavior="isolated") for words in DEEPSEEK]
    digits = pre_tokenizers.Digits(individual_digits=True)
    yield "deepseek", of_words(*isolated, digits, bytes_only)
    yield "phi", with_spaces(gpt2())
    yield "roberta", of_words(digits, pre_tokenizers.ByteLevel(add_prefix_space=True))
    between = pre_tokenizers.Split(Regex(r"\s+"), behavior="merged_with_next", invert=True)
    punctuation = pre_tokenizers.Punctuation(behavior="contiguous")
    removed = pre_tokenizers.Split(Regex("[xyz]"), behavior="removed")
    yield "others", of_words(punctuation, between, removed, bytes_only)


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--write", action="store_true")
    if parser.parse_args().write:
        cases = []
        for name, tokenizer in tokenizers():
            document = with_added(tokenizer).to_str()
            ids = [{"text": text, "ids": ids_of(document, text)} for text in TEXTS]
            cases.append({"name": name, "tokenizer": json.loads(document), "texts": ids})
        DATA.write_text(json.dumps({"cases": cases}, ensure_ascii=False) + "\n", encoding="utf-8")
        return 0
    differences = 0
    for case in json.loads(DATA.read_text(encoding="utf-8"))["cases"]:
        document = json.dumps(case["tokenizer"])
        for text in case["texts"]:
            ids = ids_of(document, text["text"])
            if ids != text["ids"]:
                differences += 1
                print(f"{case['name']}: {text['text']!r}: {ids}")
    return 1 if differences else 0


def ids_of(document, text):
    return Tokenizer.from_str(document).encode(text, add_special_tokens=False).ids


if __name__ == "__main__":
    sys.exit(main())
