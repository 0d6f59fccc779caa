#!/usr/bin/env python3
"""Derives the tables of architectures from the sources and the library of the pinned llama.cpp.

    scripts/architectures.py            writes tests/data/architectures.txt and
                                        src/gguf/loadable/operands.txt
    scripts/architectures.py --check    compares them; run it after a change of the pin
    scripts/architectures.py --tried F  also takes from F which operands an architecture computes as
                                        F16 or does not use; F is the list of a run of the corpus
                                        without the check of types:
        LLB_CORPUS_ONLY=' of type 1$' LLB_CORPUS_LIST=F cargo test --release --test corpus

Needs `make lib` before, and a C compiler. An architecture: `key NAME TYPE VALUE` for the keys of a
tiny model, `optional NAME` for further keys that llama.cpp reads, `tensor NAME EXTENTS` for the
tensors that llama.cpp then creates, optional ones too, with `i32` after it for those of integers.
`every NAME` is a key that it reads for every architecture. A variant of an architecture has other
keys, and other tensors by them.
The sources give the names, the keys that an architecture reads and the operation of each tensor
(llama-arch.cpp, models/*.cpp); `architectures.c` asks the library for the tensors.
"""

import glob
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TABLE = os.path.join(ROOT, "tests/data/architectures.txt")
OPERANDS = os.path.join(ROOT, "src/gguf/loadable/operands.txt")
# Operations whose operand must be F32.
BY_ELEMENT = {"MUL", "ADD", "DIV", "ROPE", "SSM_CONV", "SSM_SCAN", "RWKV_WKV6", "SCALE"}
# clip, eagle3 and gemma4-assistant are parts of other models; llama.cpp does not load gptj, and its
# graph of plm fails for every model. clef needs a head that llama.cpp does not ask for here.
LEFT_OUT = "clef clip eagle3 gemma4-assistant gptj plm".split()
# Tensors of numbers of rows.
OF_INTEGERS = ["ffn_gate_tid2eid"]

# Keys that every model has.
BASE = {
    "vocab_size": "u32 263",
    "context_length": "u32 512",
    "embedding_length": "u32 64",
    "block_count": "u32 2",
    "feed_forward_length": "u32 64",
    "attention.head_count": "u32 2",
    "attention.head_count_kv": "u32 2",
    "attention.layer_norm_rms_epsilon": "f32 1e-5",
    "attention.layer_norm_epsilon": "f32 1e-5",
    "rope.dimension_count": "u32 32",
    "rope.freq_base": "f32 10000",
}

# Keys that models with experts have.
MOE = {
    "expert_count": "u32 4",
    "expert_used_count": "u32 2",
    "expert_feed_forward_length": "u32 32",
    "expert_shared_feed_forward_length": "u32 32",
    "expert_shared_count": "u32 1",
    "leading_dense_block_count": "u32 1",
}

# Keys that some architectures require.
WANTED = {
    "expert_weights_scale": "f32 1",
    "expert_weights_norm": "bool 1",
    "ssm.conv_kernel": "u32 4",
    "ssm.inner_size": "u32 128",
    "ssm.state_size": "u32 16",
    "ssm.time_step_rank": "u32 8",
    "ssm.group_count": "u32 1",
    "attention.sliding_window": "u32 32",
    "expert_gating_func": "u32 2",
    "attention.kv_lora_rank": "u32 32",
    "attention.q_lora_rank": "u32 32",
    "logit_scale": "f32 1",
    "attention.indexer.top_k": "u32 8",
    "attention.indexer.head_count": "u32 2",
    "attention.indexer.key_length": "u32 32",
    "attention.key_length_mla": "u32 32",
    "attention.value_length_mla": "u32 32",
    "wkv.head_size": "u32 32",
    "rope.dimension_sections": "i32[] 8,4,4,0",
    "attention.sliding_window_pattern": "bool[] 1,0",
    "final_logit_softcapping": "f32 30",
    "embedding_scale": "f32 1",
    "residual_scale": "f32 1",
    "attention.scale": "f32 0.125",
    "attention.clamp_kqv": "f32 8",
    "use_parallel_residual": "bool 1",
    "interleave_moe_layer_step": "u32 2",
    "attention.relative_buckets_count": "u32 8",
    "time_mix_extra_dim": "u32 16",
    "time_decay_extra_dim": "u32 16",
    "attention.decay_lora_rank": "u32 16",
    "attention.iclr_lora_rank": "u32 16",
    "attention.value_residual_mix_lora_rank": "u32 16",
    "attention.gate_lora_rank": "u32 16",
    "kda.head_dim": "u32 32",
    "hyper_connection.count": "u32 4",
    "hyper_connection.epsilon": "f32 1e-6",
    "hyper_connection.sinkhorn_iterations": "u32 2",
    "attention.output_lora_rank": "u32 32",
    "attention.output_group_count": "u32 2",
    "shortconv.l_cache": "u32 3",
    "attention.key_length_swa": "u32 32",
    "attention.value_length_swa": "u32 32",
    "attention.key_length_mla_swa": "u32 32",
    "attention.value_length_mla_swa": "u32 32",
    "attention.kv_lora_rank_swa": "u32 32",
    "embedding_length_per_layer_input": "u32 32",
    "kda.gate_lower_bound": "f32 -5",
    "attention.compress_rope_freq_base": "f32 10000",
    "hash_layer_count": "u32 0",
    "attention.compress_ratios": "u32[] 0,0",
    "experts_per_group": "u32 2",
    "expert_group_scale": "f32 0.05",
    "expert_chunk_feed_forward_length": "u32 32",
    "swiglu_clamp_exp": "f32[] 7,7",
    "swiglu_clamp_shexp": "f32[] 7,7",
    "attn_res.block_size": "u32 2",
    "activation.situ_beta": "f32 1",
    "activation.situ_linear_beta": "f32 1",
    "rope.dimension_count_swa": "u32 32",
    "attention.groupnorm_epsilon": "f32 1e-5",
    "attention.groupnorm_groups": "u32 2",
    "posnet.embedding_length": "u32 64",
    "posnet.block_count": "u32 1",
    "convnext.embedding_length": "u32 64",
    "convnext.block_count": "u32 1",
    "features_length": "u32 64",
    "ple.ngram_size": "u32 2",
    "ple.heads_per_ngram": "u32 1",
    "attention.indexer.block_size": "u32 16",
    "attention.indexer.local_blocks": "u32 1",
    "attention.indexer.kpool": "u32 2",
    "xielu.alpha_n": "f32[] 0.5,0.5",
    "xielu.alpha_p": "f32[] 0.5,0.5",
    "xielu.beta": "f32[] 0.5,0.5",
    "xielu.eps": "f32[] -1e-6,-1e-6",
    "num_loops": "u32 1",
    "moe_every_n_layers": "u32 2",
    "token_shift_count": "u32 2",
    "rope.freq_base_swa": "f32 10000",
    "hyper_connection.magnitude": "f32 1",
    "hyper_connection.low_rank": "u32 8",
    "attention.group_norm_epsilon": "f32 1e-5",
    "attention.group_norm_groups": "u32 2",
    "decision.routing_block_count": "u32 1",
    "decision.head_count": "u32 2",
    "decision.block_count": "u32 1",
    "attention.indexer.types": "bool[] 1,1",
    "hrm.layers_per_stack": "u32 1",
    "hrm.h_cycles": "u32 1",
    "hrm.l_cycles": "u32 1",
    "adapters.count": "u32 1",
    "adapters.lora_rank": "u32 8",
    "adapters.token_ids_activate": "u32[] 5",
    "adapters.token_ids_substitute": "u32[] 6",
}

# Keys that replace or extend these for some architectures.
OWN = {
    "afmoe": {
        "attention.sliding_window": "u32 32",
        "attention.sliding_window_pattern": "bool[] 1,0",
    },
    "arwkv7": {
        "wkv.head_size": "u32 64",
        "token_shift_count": "u32 1",
        "attention.gate_lora_rank": "u32 16",
    },
    "bailingmoe3": {
        "rope.dimension_count": "u32 16",
        "attention.head_count_kv": "u32[] 0,1",
        "attention.key_length": "u32 48",
        "attention.value_length": "u32 32",
        "attention.key_length_mla": "u32 32",
        "attention.value_length_mla": "u32 32",
        "attention.kv_lora_rank": "u32 32",
        "attention.q_lora_rank": "u32 32",
    },
    "bert": {
        "tokenizer.ggml.token_type_count": "u32 2",
    },
    # Its graph hides the logits of tokens 4 to 8195.
    "chameleon": {
        "vocab_size": "u32 8200",
    },
    "deepseek2": {
        "rope.dimension_count": "u32 16",
        "attention.head_count_kv": "u32 1",
        "attention.key_length": "u32 48",
        "attention.value_length": "u32 32",
        "attention.key_length_mla": "u32 32",
        "attention.value_length_mla": "u32 32",
        "attention.kv_lora_rank": "u32 32",
        "attention.q_lora_rank": "u32 32",
    },
    "deepseek32": {
        "rope.dimension_count": "u32 16",
        "attention.head_count_kv": "u32 1",
        "attention.key_length": "u32 48",
        "attention.value_length": "u32 32",
        "attention.key_length_mla": "u32 32",
        "attention.value_length_mla": "u32 32",
        "attention.kv_lora_rank": "u32 32",
        "attention.q_lora_rank": "u32 32",
        "attention.indexer.key_length": "u32 64",
    },
    "deepseek4": {
        "attention.head_count_kv": "u32 1",
        "attention.key_length": "u32 128",
        "attention.value_length": "u32 128",
        "attention.indexer.key_length": "u32 64",
        "hash_layer_count": "u32 1",
        "expert_gating_func": "u32 4",
        "attention.compress_ratios": "u32[] 4,128",
    },
    "dflash": {
        "target_layers": "u32[] 0,1",
        "target_hidden_size": "u32 64",
    },
    "dots1": {
        "expert_gating_func": "u32 2",
    },
    "dots3note": {
        "block_count": "u32 4",
        "rope.dimension_count": "u32 16",
        "attention.head_count_kv": "u32 1",
        "attention.key_length": "u32 64",
        "attention.value_length": "u32 32",
        "attention.key_length_mla": "u32 32",
        "attention.value_length_mla": "u32 32",
        "attention.kv_lora_rank": "u32 48",
        "attention.kv_lora_rank_swa": "u32 48",
        "attention.q_lora_rank": "u32 32",
        "attention.sliding_window_pattern": "bool[] 1,0,1,0",
        "attention.indexer.key_length": "u32 64",
        "attention.indexer.types": "bool[] 1,1,1,1",
    },
    "gemma-embedding": {
        "block_count": "u32 6",
    },
    "glm-dsa": {
        "rope.dimension_count": "u32 16",
        "attention.head_count_kv": "u32 1",
        "attention.key_length": "u32 48",
        "attention.value_length": "u32 32",
        "attention.key_length_mla": "u32 32",
        "attention.value_length_mla": "u32 32",
        "attention.kv_lora_rank": "u32 32",
        "attention.q_lora_rank": "u32 32",
        "attention.indexer.key_length": "u32 64",
    },
    "glm5-next": {
        "rope.dimension_count": "u32 0",
        "attention.head_count_kv": "u32[] 0,1",
        "attention.key_length": "u32 32",
        "attention.value_length": "u32 32",
        "attention.key_length_mla": "u32 32",
        "attention.value_length_mla": "u32 32",
        "attention.kv_lora_rank": "u32 32",
        "attention.q_lora_rank": "u32 32",
    },
    "granitehybrid": {
        "attention.head_count_kv": "u32[] 0,2",
    },
    "hrm_text": {
        "feed_forward_length": "u32 64",
    },
    "hy_v4": {
        "rope.dimension_count": "u32 16",
        "attention.head_count_kv": "u32 1",
        "attention.key_length": "u32 48",
        "attention.value_length": "u32 32",
        "attention.key_length_mla": "u32 32",
        "attention.value_length_mla": "u32 32",
        "attention.kv_lora_rank": "u32 32",
        "attention.q_lora_rank": "u32 32",
        "expert_gating_func": "u32 2",
    },
    "jamba": {
        "attention.head_count_kv": "u32[] 0,2",
    },
    "jina-bert-v2": {
        "tokenizer.ggml.token_type_count": "u32 2",
    },
    "jina-bert-v3": {
        "tokenizer.ggml.token_type_count": "u32 2",
    },
    "kimi-k3": {
        "rope.dimension_count": "u32 16",
        "attention.head_count_kv": "u32[] 0,1",
        "attention.key_length": "u32 48",
        "attention.value_length": "u32 32",
        "attention.key_length_mla": "u32 32",
        "attention.value_length_mla": "u32 32",
        "attention.kv_lora_rank": "u32 32",
        "attention.q_lora_rank": "u32 32",
    },
    "kimi-linear": {
        "rope.dimension_count": "u32 16",
        "attention.head_count_kv": "u32[] 0,1",
        "attention.key_length": "u32 48",
        "attention.value_length": "u32 32",
        "attention.key_length_mla": "u32 32",
        "attention.value_length_mla": "u32 32",
        "attention.kv_lora_rank": "u32 32",
        "attention.q_lora_rank": "u32 32",
    },
    "lfm2": {
        "attention.head_count_kv": "u32[] 0,2",
    },
    "lfm2moe": {
        "attention.head_count_kv": "u32[] 0,2",
    },
    "llama4": {
        "block_count": "u32 4",
    },
    "minimax-01": {
        "full_attention_interval": "u32 2",
    },
    "minimax-m2": {
        "expert_gating_func": "u32 2",
    },
    "mistral4": {
        "rope.dimension_count": "u32 16",
        "attention.head_count_kv": "u32 1",
        "attention.key_length": "u32 48",
        "attention.value_length": "u32 32",
        "attention.key_length_mla": "u32 32",
        "attention.value_length_mla": "u32 32",
        "attention.kv_lora_rank": "u32 32",
        "attention.q_lora_rank": "u32 32",
    },
    "nemotron_h": {
        "attention.head_count_kv": "u32[] 0,2",
        "feed_forward_length": "u32[] 0,0",
    },
    "nemotron_h_moe": {
        "attention.head_count_kv": "u32[] 0,2",
        "feed_forward_length": "u32[] 0,0",
    },
    "nomic-bert": {
        "tokenizer.ggml.token_type_count": "u32 2",
    },
    "nomic-bert-moe": {
        "tokenizer.ggml.token_type_count": "u32 2",
    },
    "paddleocr": {
        "rope.dimension_sections": "i32[] 8,4,4,0",
    },
    "phimoe": {
        "expert_count": "u32 4",
        "expert_used_count": "u32 2",
    },
    "plamo2": {
        "attention.head_count_kv": "u32[] 0,2",
        "ssm.group_count": "u32 0",
    },
    "qwen35": {
        "full_attention_interval": "u32 2",
    },
    "qwen35moe": {
        "full_attention_interval": "u32 2",
    },
    "qwen3next": {
        "full_attention_interval": "u32 2",
    },
    # Its output has 3,072 rows, which are for the last tokens.
    "qwen3tts": {
        "vocab_size": "u32 3080",
    },
    "qwen4exp": {
        "full_attention_interval": "u32 2",
    },
    "rwkv6qwen2": {
        "token_shift_count": "u32 1",
    },
    "rwkv7": {
        "wkv.head_size": "u32 64",
        "attention.gate_lora_rank": "u32 16",
    },
    "smallthinker": {
        "expert_gating_func": "u32 2",
    },
}

# A layer with a state, one with attention, and one with neither.
NEMOTRON_FFN = {
    "block_count": "u32 3",
    "attention.head_count_kv": "u32[] 0,2,0",
    "feed_forward_length": "u32[] 0,0,64",
}

# Further models of an architecture: keys that replace or extend those of the first one, or None for
# a key that it does not have. Two more are made by `variants_of`: "dense" has no experts, "swapped"
# has the layers with a state and those with attention the other way round.
VARIANTS = {
    "bailingmoe2": {"groups": {"expert_group_count": "u32 2", "expert_group_used_count": "u32 1"}},
    "bailingmoe3": {"full_q": {"attention.q_lora_rank": None}},
    "deci": {
        "no_attention": {"attention.head_count_kv": "u32[] 0,2"},
        "no_ffn": {"feed_forward_length": "u32[] 0,64"},
    },
    "deepseek2": {
        "full_kv": {
            "attention.key_length_mla": None,
            "attention.value_length_mla": None,
            "attention.head_count_kv": "u32 2",
        },
        "full_q": {"attention.q_lora_rank": "u32 0"},
        "groups": {"expert_group_count": "u32 2", "expert_group_used_count": "u32 1"},
    },
    "deepseek4": {
        "hashed": {"hash_layer_count": "u32 2"},
        "uncompressed": {"attention.compress_ratios": "u32[] 0,4", "hash_layer_count": "u32 0"},
    },
    "dots3note": {"fewer_indexers": {"attention.indexer.types": "bool[] 0,1,0,1"}},
    "gemma-embedding": {
        "dense_layers": {
            "dense_2_feat_in": "u32 64",
            "dense_2_feat_out": "u32 96",
            "dense_3_feat_in": "u32 96",
            "dense_3_feat_out": "u32 64",
        },
    },
    "gemma4": {
        "no_ple": {"embedding_length_per_layer_input": "u32 0"},
        "shared_kv": {
            "block_count": "u32 4",
            "attention.sliding_window_pattern": "bool[] 1,0,1,0",
            "attention.shared_kv_layers": "u32 2",
        },
    },
    "glm-dsa": {"shared": {"attention.indexer.types": "bool[] 1,0"}},
    "hy_v4": {
        "indexed": {
            "attention.indexer.head_count": "u32 2",
            "attention.indexer.key_length": "u32 64",
            "attention.indexer.top_k": "u32 8",
            "attention.indexer.types": "bool[] 1,0",
        },
    },
    "kimi-k3": {
        "full_q": {"attention.q_lora_rank": None},
        "latent": {"expert_latent_length": "u32 32"},
    },
    "llama4": {
        "all_experts": {"interleave_moe_layer_step": "u32 1"},
        "no_experts": {"interleave_moe_layer_step": "u32 0"},
    },
    "mamba": {"normed": {"ssm.dt_b_c_rms": "bool 1"}},
    "minimax-01": {"swapped": {"attention.recurrent_layers": "bool[] 0,1"}},
    "mistral4": {
        "full_kv": {
            "attention.key_length_mla": None,
            "attention.value_length_mla": None,
            "attention.head_count_kv": "u32 2",
        },
    },
    "modern-bert": {
        "decision": {
            "decision.block_count": "u32 1",
            "tokenizer.ggml.token_type_count": "u32 3",
        },
    },
    "nanbeige": {"looped": {"num_loops": "u32 2"}},
    "nemotron_h": {"ffn": NEMOTRON_FFN},
    "nemotron_h_moe": {"ffn": NEMOTRON_FFN, "latent": NEMOTRON_FFN | {"moe_latent_size": "u32 32"}},
    "qwen4exp": {
        "compressed": {"attention.compress_ratios": "u32[] 0,2"},
        "ple": {
            "ple.layers": "u32[] 0",
            "ple.ngram_size": "u32 2",
            "ple.heads_per_ngram": "u32 2",
            "ple.conv_kernel": "u32 4",
            "ple.eos_token_id": "u32 2",
            "ple.layer_multipliers": "u64[] 3,5",
            "ple.head_offsets": "u64[] 0,7",
            "ple.head_vocab_sizes": "u64[] 7,9",
            "embedding_length_per_layer_input": "u32 32",
        },
    },
}


def source_folder():
    found = glob.glob(os.path.expanduser("~/.cargo/registry/src/*/llama-cpp-sys-2-*/llama.cpp"))
    pinned = re.search(r'llama-cpp-sys-2 = \{ version = "=([^"]+)"', read("Cargo.toml"))[1]
    folders = [folder for folder in found if f"llama-cpp-sys-2-{pinned}/" in folder]
    return folders[0] if folders else sys.exit("run `make lib` first: no sources of llama.cpp")


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def build(source, folder):
    """Compiles architectures.c with the libraries that cargo built."""
    outs = glob.glob(os.path.join(ROOT, "target/release/build/llama-cpp-sys-2-*/out/lib"))
    if not outs:
        sys.exit("run `make lib` first: no libraries of llama.cpp")
    libraries = max(outs, key=os.path.getmtime)
    program = os.path.join(folder, "architectures")
    command = ["cc", "-O1", f"-I{source}/include", f"-I{source}/ggml/include"]
    command += [os.path.join(ROOT, "scripts/architectures.c"), "-o", program, f"-L{libraries}"]
    command += ["-lllama", "-lggml", "-lggml-cpu", "-lggml-base"]
    command += glob.glob(os.path.join(libraries, "../build/vendor/hash/*.a"))
    subprocess.run(command + "-lstdc++ -lm -lpthread -fopenmp -ldl".split(), check=True)
    return program


def files_of(source, names):
    """The file of models/ that reads each architecture's keys."""
    classes = {}
    for path in glob.glob(f"{source}/src/models/*.cpp"):
        for name in re.findall(r"llama_model_(\w+)::load_arch_hparams", read(path)):
            classes[name] = path
    header = read(f"{source}/src/models/models.h")
    parents = dict(re.findall(r"struct llama_model_(\w+) : public llama_model_(\w+)", header))
    text = read(f"{source}/src/llama-model.cpp")
    mapping = re.findall(r"case LLM_ARCH_(\w+):\s+return new llama_model_(\w+)\(", text)
    files = {}
    for number, name in mapping:
        while name not in classes and name in parents:
            name = parents[name]
        files[names[number]] = classes.get(name)
    return files


def full_key(architecture, key):
    return key if key.startswith(("xielu.", "tokenizer.")) else f"{architecture}.{key}"


def tensors_of(program, architecture, keys):
    """The output of architectures.c, or None with the errors of llama.cpp."""
    lines = [f"general.architecture\tstr\t{architecture}", "tokenizer.ggml.model\tstr\tno_vocab"]
    for key, value in keys.items():
        kind, value = value.split(" ")
        lines.append(f"{full_key(architecture, key)}\t{kind}\t{value}")
    text = "".join(line + "\n" for line in lines)
    ran = subprocess.run([program], input=text, capture_output=True, text=True, timeout=60)
    return (ran.stdout.splitlines() if ran.returncode == 0 else None), ran.stderr


def keys_in(path, names):
    """The keys that a file of the sources names."""
    found = set(re.findall(r"\bLLM_KV_\w+", read(path)))
    return {names[name] for name in found if name in names}


def complete(program, architecture, keys):
    """The keys with those that llama.cpp asks for, their tensors or None, and its errors."""
    keys = dict(keys)
    for _ in range(60):
        tensors, errors = tensors_of(program, architecture, keys)
        missing = re.search(r"key not found in model: (\S+)", errors)
        key = missing and missing[1].removeprefix(architecture + ".")
        if tensors is not None or key not in WANTED or key in keys:
            break
        keys[key] = WANTED[key]
    return keys, tensors, errors


def lines_of(architecture, head, keys, optional, tensors):
    lines = [head]
    lines += [f"key {full_key(architecture, key)} {value}" for key, value in keys.items()]
    lines += [f"optional {full_key(architecture, key)}" for key in sorted(optional - keys.keys())]
    seen = set()
    for tensor in tensors:
        name, *extents = tensor.split()
        scale = name.endswith((".scale", ".input_scale")) and set(extents) == {"1"}
        # With this key, llama.cpp mistakes the layers for another architecture's.
        other = architecture == "rwkv6qwen2" and "time_mix_first" in name
        if name in seen or scale or other:
            continue
        seen.add(name)
        while len(extents) > 1 and extents[-1] == "1":
            extents.pop()
        kind = " i32" if any(word in name for word in OF_INTEGERS) else ""
        lines.append(f"tensor {name} {','.join(extents)}{kind}")
    return lines


def variants_of(architecture, keys):
    """The names and keys of further models. Not every architecture has all of them."""
    yield "dense", {key: value for key, value in keys.items() if key not in MOE}
    kind, heads = keys["attention.head_count_kv"].split(" ")
    if kind.endswith("[]"):
        swapped = ",".join(reversed(heads.split(",")))
        yield "swapped", keys | {"attention.head_count_kv": f"{kind} {swapped}"}
    for name, changes in VARIANTS.get(architecture, {}).items():
        changed = {key: value for key, value in (keys | changes).items() if value is not None}
        yield name, changed


def describe(program, architecture, path, optional):
    """The lines of an architecture and its variants, with the keys that llama.cpp asks for."""
    keys = dict(BASE)
    if "EXPERT" in read(path) and architecture != "phimoe":
        keys.update(MOE)
    keys.update(OWN.get(architecture, {}))
    keys, tensors, errors = complete(program, architecture, keys)
    if tensors is None:
        sys.exit(f"{architecture}: {errors.strip()}")
    lines = lines_of(architecture, f"architecture {architecture}", keys, optional, tensors)
    names = {tensor.split()[0] for tensor in tensors}
    for name, changed in variants_of(architecture, keys):
        changed, others, errors = complete(program, architecture, changed)
        known = name in VARIANTS.get(architecture, {})
        if others is None and known:
            sys.exit(f"{architecture} {name}: {errors.strip()}")
        if known or others and {tensor.split()[0] for tensor in others} != names:
            head = f"variant {architecture} {name}"
            lines += lines_of(architecture, head, changed, optional, others)
    return lines


# Tensors that an operation reads as F32 without a check of their type (`ggml_rwkv_wkv6`).
RAW = {"blk.%d.time_mix_first.weight"}


def operands(source, tried):
    text = read(f"{source}/src/llama-arch.cpp")
    names = dict(re.findall(r'\{ (LLM_TENSOR_\w+),\s+"([^"]+)"', text))
    operations = dict(
        re.findall(r"\{(LLM_TENSOR_\w+),\s+\{LLM_TENSOR_LAYER_\w+,\s+GGML_OP_(\w+)\}", text)
    )
    wanted = {names[it] for it, op in operations.items() if op in BY_ELEMENT and it in names}
    if tried is None:
        unless = [line for line in read(OPERANDS).splitlines() if " unless " in line]
    else:
        unless = set()
        for line in read(tried).splitlines():
            found = re.match(r"replied\t(\S+): (\S+) of type 1\t", line)
            if not found:
                continue
            parts = found[2].split(".")
            name = ".".join("%d" if part.isdigit() else part for part in parts)
            if name.endswith(".bias") or name.removesuffix(".weight") in wanted:
                unless.add(f"{name} unless {found[1]}")
    unless = [line for line in unless if line.split()[0] not in RAW]
    return ["# Made by scripts/architectures.py."] + sorted(wanted) + sorted(unless)


def main():
    source = source_folder()
    text = read(f"{source}/src/llama-arch.cpp")
    names = dict(re.findall(r'\{ LLM_ARCH_(\w+),\s+"([^"]+)"', text))
    names.pop("UNKNOWN")
    keys = dict(re.findall(r'\{ (LLM_KV_\w+),\s+"%s\.([^"]+)"', text))
    of_all = keys_in(f"{source}/src/llama-model.cpp", keys)
    files = files_of(source, names)
    tried = sys.argv[2] if sys.argv[1:2] == ["--tried"] else None
    lines = [f"every {key}" for key in sorted(of_all)]
    with tempfile.TemporaryDirectory() as folder:
        program = build(source, folder)
        for name in sorted(set(names.values()) - set(LEFT_OUT)):
            optional = keys_in(files[name], keys) - of_all
            lines += describe(program, name, files[name], optional)
    same = True
    for path, made in [(TABLE, lines), (OPERANDS, operands(source, tried))]:
        text = "".join(line + "\n" for line in made)
        if sys.argv[1:] == ["--check"]:
            if read(path) != text:
                same = False
                name = os.path.relpath(path, ROOT)
                print(f"{name} is not what llama.cpp has now", file=sys.stderr)
        else:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
    sys.exit(0 if same else 1)


main()
