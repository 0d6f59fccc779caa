#!/usr/bin/env python3
"""Compares llb_tokenize with Hugging Face's `tokenizers` on real vocabularies.

    scripts/tokens.py LIBRARY FOLDER FILE.gguf...

FOLDER has all-MiniLM-L6-v2 with its tokenizer.json (`scripts/embeddings.py check` downloads and
writes it). Each FILE has a byte-level BPE vocabulary. Its tokens and merges are read from the GGUF
file. Its pre-tokenizer is that of the model's own tokenizer.json, by `tokenizer.ggml.pre`.

The texts are those of scripts/embeddings.py, the documentation of this repository, and random texts
of several scripts.

Needs the packages gguf and tokenizers; `make embeddings` installs them. Exit status: 0, or 1 if the
ids of a text differ.
"""

import random
import sys
from pathlib import Path

import gguf
from embeddings import TEXTS, Library
from tokenizers import AddedToken, Regex, Tokenizer, models, pre_tokenizers

ROOT = Path(__file__).resolve().parent.parent

# The pre-tokenizers of Qwen2 and SmolLM, by llama.cpp's names.
QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
WORDS = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
PRE_TOKENIZERS = {
    "qwen2": [pre_tokenizers.Split(Regex(QWEN2), "isolated"), BYTES],
    "smollm": [pre_tokenizers.Digits(individual_digits=True), WORDS],
}

# First and last characters: Latin, Greek, Cyrillic, Hebrew, Arabic, Devanagari, Thai, Hangul, kana,
# Han, punctuation, symbols, emoji.
RANGES = [
    (0x20, 0x7E), (0xA1, 0x17F), (0x391, 0x3C9), (0x410, 0x44F), (0x5D0, 0x5EA), (0x620, 0x64A),
    (0x905, 0x939), (0xE01, 0xE2E), (0xAC00, 0xD7A3), (0x3041, 0x30FA), (0x4E00, 0x9FA5),
    (0x2010, 0x2027), (0x2200, 0x22FF), (0x1F300, 0x1F5FF),
]


def texts(count):
    """The texts to compare. The same in every run."""
    chosen = random.Random(1)
    pages = [page.read_text() for page in sorted((ROOT / "docs").rglob("*.md"))]

    def word():
        first, last = chosen.choice(RANGES)
        return "".join(chr(chosen.randint(first, last)) for _ in range(chosen.randint(1, 8)))

    spaces = [" ", " ", " ", "  ", "\n", "\n\n", "\t", " \n ", ""]
    made = [
        "".join(word() + chosen.choice(spaces) for _ in range(chosen.randint(1, 12)))
        for _ in range(count)
    ]
    lines = [line for page in pages for line in page.splitlines() if line]
    return [text for text in TEXTS if text] + pages + lines + made


def of_file(path):
    """Hugging Face's tokenizer with the vocabulary of a GGUF file."""
    fields = gguf.GGUFReader(path).fields
    value = lambda key: fields[f"tokenizer.ggml.{key}"].contents()
    pre = value("pre")
    if value("model") != "gpt2" or pre not in PRE_TOKENIZERS:
        sys.exit(f"{path}: no pre-tokenizer is known for {value('model')!r}, {pre!r}")
    tokens, kinds = value("tokens"), value("token_type")
    vocabulary = {
        token: at
        for at, (token, kind) in enumerate(zip(tokens, kinds))
        if kind != gguf.TokenType.UNUSED
    }
    merges = [tuple(merge.split(" ", 1)) for merge in value("merges")]
    tokenizer = Tokenizer(models.BPE(vocabulary, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(PRE_TOKENIZERS[pre])
    added = [
        AddedToken(token, normalized=False)
        for token, kind in zip(tokens, kinds)
        if kind == gguf.TokenType.USER_DEFINED
    ]
    tokenizer.add_tokens(added)
    return tokenizer


def compare(name, tokenizer, ids, compared):
    """Prints and counts the texts whose ids differ."""
    n_tokens = differ = 0
    for text in compared:
        expected = tokenizer.encode(text).ids
        got = ids(text)
        n_tokens += len(expected)
        if got != expected:
            differ += 1
            if differ <= 5:
                at = next((at for at, (a, b) in enumerate(zip(got, expected)) if a != b), -1)
                print(f"{name}: {text[:60]!r}: at {at} {got[at:][:5]}, not {expected[at:][:5]}")
    print(f"{name}: {len(compared)} texts, {n_tokens} tokens, {differ} texts differ")
    return differ


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    library, folder = Library(sys.argv[1]), Path(sys.argv[2])
    compared = texts(2000)
    wordpiece = Tokenizer.from_file(str(folder / "model" / "tokenizer.json"))
    wordpiece.no_padding()
    wordpiece.no_truncation()
    bert = folder / "all-MiniLM-L6-v2-f32.gguf"
    # Hugging Face's tokenizers always read the text of a control token as that token.
    of_bert = lambda text: library.ids(bert, text, add_special=True, parse_special=True)
    differ = compare(bert.stem, wordpiece, of_bert, compared)
    for path in map(Path, sys.argv[3:]):
        of_model = lambda text: library.ids(path, text)
        differ += compare(path.stem, of_file(path), of_model, compared)
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
