#!/usr/bin/env python3
"""Writes a model with random weights and the shape of a Qwen2.5, Q4_K_M, to measure speed.

    benches/device/random_model.py LIKE.gguf OUTPUT.gguf [7b | 1.5b | moe]

LIKE is any model of the architecture qwen2. Its vocabulary and chat template are used; its weights
are not read. The replies are random words. The default shape, 7b, takes 4.7 GB. The shape moe is
half of the layers of a Qwen3-30B-A3B, which has experts, and takes 9.4 GB.
"""

import os
import random
import struct
import sys

LIKE = "qwen2"
WITH_EXPERTS = "qwen3moe"
NAMES = ("block_count", "embedding_length", "feed_forward_length", "attention.head_count",
         "attention.head_count_kv")
EXPERT_NAMES = ("expert_count", "expert_used_count", "expert_feed_forward_length",
                "attention.key_length", "attention.value_length")
# From the models' config.json, in the order of the names.
SHAPES = {"7b": (28, 3584, 18944, 28, 4), "1.5b": (28, 1536, 8960, 12, 2),
          "moe": (24, 2048, 6144, 32, 4)}
# Experts, those that a token uses, their inner width, and the lengths of a head.
EXPERTS = (128, 8, 768, 128, 128)
STRING, ARRAY, UINT32 = 8, 9, 4
SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
ALIGNMENT = 32
F32, Q4_K, Q6_K = 0, 12, 14
# The deviation of the weights.
DEVIATION = 0.02
# Random bytes that are repeated, in blocks of 256 weights.
BLOCKS = 1 << 16


class Reader:
    def __init__(self, file):
        self.file = file

    def number(self, code):
        return struct.unpack(f"<{code}", self.file.read(struct.calcsize(code)))[0]

    def string(self):
        return self.file.read(self.number("Q"))

    def skip(self, kind):
        """Skips a value. Returns the length if it is an array."""
        if kind == STRING:
            self.string()
        elif kind == ARRAY:
            inner, count = self.number("I"), self.number("Q")
            for _ in range(count if inner in (STRING, ARRAY) else 0):
                self.skip(inner)
            self.file.seek(count * SIZES.get(inner, 0), os.SEEK_CUR)
            return count
        else:
            self.file.seek(SIZES[kind], os.SEEK_CUR)
        return None


def text(name):
    """A string as GGUF has it."""
    return struct.pack("<Q", len(name.encode())) + name.encode()


def metadata(path, shape, has_experts):
    """The metadata as name to bytes, and the number of tokens."""
    with open(path, "rb") as file:
        reader = Reader(file)
        if file.read(4) != b"GGUF" or reader.number("I") != 3:
            sys.exit(f"{path}: not a GGUF file of version 3")
        reader.number("Q")
        values, tokens = {}, 0
        for _ in range(reader.number("Q")):
            name = reader.string().decode()
            start = file.tell()
            length = reader.skip(reader.number("I"))
            end = file.tell()
            file.seek(start)
            values[name] = file.read(end - start)
            tokens = length if name == "tokenizer.ggml.tokens" else tokens
    if f"{LIKE}.block_count" not in values:
        sys.exit(f"{path}: its architecture is not {LIKE}")
    numbers = dict(zip(NAMES, shape))
    architecture = LIKE
    if has_experts:
        numbers.update(zip(EXPERT_NAMES, EXPERTS))
        architecture = WITH_EXPERTS
        own = [name for name in values if name.startswith(f"{LIKE}.")]
        values.update((architecture + name[len(LIKE):], values.pop(name)) for name in own)
        values["general.architecture"] = struct.pack("<I", STRING) + text(architecture)
    values.update((f"{architecture}.{name}", struct.pack("<II", UINT32, value))
                  for name, value in numbers.items())
    return values, tokens


def tensors_with_experts(shape, tokens):
    """The same for the shape with experts."""
    layers, width, _, heads, kv_heads = shape
    count, _, inner, head, _ = EXPERTS
    yield "token_embd.weight", (width, tokens), Q4_K
    for layer in range(layers):
        for name, dimensions, kind in (
            ("attn_norm.weight", (width,), F32),
            ("attn_q.weight", (width, heads * head), Q4_K), ("attn_q_norm.weight", (head,), F32),
            ("attn_k.weight", (width, kv_heads * head), Q4_K), ("attn_k_norm.weight", (head,), F32),
            ("attn_v.weight", (width, kv_heads * head), Q6_K),
            ("attn_output.weight", (heads * head, width), Q4_K),
            ("ffn_norm.weight", (width,), F32),
            ("ffn_gate_inp.weight", (width, count), F32),
            ("ffn_gate_exps.weight", (width, inner, count), Q4_K),
            ("ffn_up_exps.weight", (width, inner, count), Q4_K),
            ("ffn_down_exps.weight", (inner, width, count), Q6_K),
        ):
            yield f"blk.{layer}.{name}", dimensions, kind
    yield "output_norm.weight", (width,), F32
    yield "output.weight", (width, tokens), Q6_K


def tensors(shape, tokens):
    """Name, dimensions and type of each tensor."""
    layers, width, inner, heads, kv_heads = shape
    kv_width = width // heads * kv_heads
    yield "token_embd.weight", (width, tokens), Q4_K
    for layer in range(layers):
        # llama.cpp's choice for Q4_K_M.
        first, last = layers // 8, 7 * layers // 8
        more = Q6_K if layer < first or layer >= last or (layer - first) % 3 == 2 else Q4_K
        for name, shape, kind in (
            ("attn_norm.weight", (width,), F32),
            ("attn_q.weight", (width, width), Q4_K), ("attn_q.bias", (width,), F32),
            ("attn_k.weight", (width, kv_width), Q4_K), ("attn_k.bias", (kv_width,), F32),
            ("attn_v.weight", (width, kv_width), more), ("attn_v.bias", (kv_width,), F32),
            ("attn_output.weight", (width, width), Q4_K),
            ("ffn_norm.weight", (width,), F32),
            ("ffn_gate.weight", (width, inner), Q4_K),
            ("ffn_up.weight", (width, inner), Q4_K),
            ("ffn_down.weight", (inner, width), more),
        ):
            yield f"blk.{layer}.{name}", shape, kind
    yield "output_norm.weight", (width,), F32
    yield "output.weight", (width, tokens), Q6_K


def blocks(kind):
    """Random blocks of 256 weights with an average of 0."""
    half = lambda value: struct.pack("<e", value)
    if kind == Q4_K:
        # Eight scales and minima of 32 each; weights of 0 to 15, deviation 4.6.
        scale = DEVIATION / (32 * 4.6)
        head = half(scale) + half(7.5 * scale) + b"\xa0" * 8 + b"\0" * 4
        return b"".join(head + os.urandom(128) for _ in range(BLOCKS))
    # Sixteen scales of 8; weights of -32 to 31, deviation 18.5.
    tail = b"\x08" * 16 + half(DEVIATION / (8 * 18.5))
    return b"".join(os.urandom(192) + tail for _ in range(BLOCKS))


def size_of(shape, kind):
    weights = 1
    for dimension in shape:
        weights *= dimension
    return {F32: weights * 4, Q4_K: weights // 256 * 144, Q6_K: weights // 256 * 210}[kind]


def main():
    shape = SHAPES.get((sys.argv + ["7b"])[3]) if len(sys.argv) in (3, 4) else None
    if not shape:
        sys.exit(__doc__)
    has_experts = sys.argv[3:] == ["moe"]
    values, tokens = metadata(sys.argv[1], shape, has_experts)
    listed = list((tensors_with_experts if has_experts else tensors)(shape, tokens))
    header = b"GGUF" + struct.pack("<IQQ", 3, len(listed), len(values))
    header += b"".join(text(name) + value for name, value in values.items())
    padded = lambda size: -(-size // ALIGNMENT) * ALIGNMENT
    offset = 0
    for name, shape, kind in listed:
        dimensions = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
        header += text(name) + dimensions + struct.pack("<IQ", kind, offset)
        offset += padded(size_of(shape, kind))
    repeated = {kind: blocks(kind) for kind in (Q4_K, Q6_K)}
    with open(sys.argv[2], "wb") as output:
        output.write(header.ljust(padded(len(header)), b"\0"))
        for name, shape, kind in listed:
            size = size_of(shape, kind)
            if kind == F32:
                if name.endswith("ffn_gate_inp.weight"):
                    numbers = [random.gauss(0, 2 * DEVIATION) for _ in range(size // 4)]
                    output.write(struct.pack(f"<{len(numbers)}f", *numbers))
                else:
                    one = 1.0 if name.endswith("norm.weight") else 0.0
                    output.write(struct.pack("<f", one) * (size // 4))
            for start in range(0, size if kind != F32 else 0, len(repeated.get(kind, b"x"))):
                output.write(repeated[kind][:size - start])
            output.write(b"\0" * (padded(size) - size))


if __name__ == "__main__":
    main()
