#!/usr/bin/env python3
"""Compares the llama.cpp of two versions of llama-cpp-sys-2, and tries the new one.

    scripts/bump.py sources VERSION [OLD]   compares the sources alone, of VERSION with OLD (the
                                            pinned one): architectures, defaults, functions
    scripts/bump.py measure FOLDER          writes what the built library answers and how fast it is,
                                            for `compare`
    scripts/bump.py compare OLD NEW         compares two folders of `measure`
    scripts/bump.py pin VERSION             writes the version into Cargo.toml and Cargo.lock

All but `pin` and `measure` change nothing, and each prints Markdown. `make bump VERSION=…` runs them in
their order, with a build between.
"""

import difflib
import json
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CRATE = "llama-cpp-sys-2"
PIN = re.compile(rf'^({CRATE} = {{ version = "=)([0-9.]+)', re.M)
DEFAULTS = [
    "llama_model_default_params",
    "llama_context_default_params",
    "llama_sampler_chain_default_params",
]
# What is measured: the shortest run of these benches that counts something.
BENCHES = ["decode", "model_info"]


def pinned():
    return PIN.search((ROOT / "Cargo.toml").read_text())[2]


def sources(version):
    """Path and text of the C and C++ files of a version, which cargo downloads."""
    subprocess.run(["cargo", "info", "--quiet", f"{CRATE}@{version}"], check=True,
                   stdout=subprocess.DEVNULL, cwd="/")  # fmt: skip
    home = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo"))
    (archive,) = home.glob(f"registry/cache/*/{CRATE}-{version}.crate")
    with tarfile.open(archive) as crate:
        return {
            member.name.split("/llama.cpp/", 1)[1]: crate.extractfile(member).read().decode()
            for member in crate
            if "/llama.cpp/" in member.name
            and re.search(r"/(src|include)/.*\.(h|cpp)$", member.name)
        }


def architectures(texts):
    names = re.findall(r'\{ *LLM_ARCH_\w+, *"([^"]+)"', texts["src/llama-arch.cpp"])
    return set(names) - {"(unknown)"}


def functions(texts):
    """The C functions of llama.h and their declarations."""
    header = re.sub(r"//.*", "", texts["include/llama.h"])
    found = re.findall(r"LLAMA_API\s+([^;]*?\b(llama_\w+)\s*\([^;]*)\)\s*;", header)
    return {name: re.sub(r"\s+", " ", text) + ")" for text, name in found}


def body(texts, name):
    """The lines of a function, without their alignment."""
    for text in texts.values():
        if found := re.search(rf"^[\w ]+\b{name}\(\) \{{\n(.*?)^\}}", text, re.M | re.S):
            return [
                re.sub(r"\s+", " ", line.strip()) for line in found[1].splitlines() if line.strip()
            ]
    return []


def listed(title, items):
    print(f"\n### {title}\n")
    print("\n".join(f"- {item}" for item in items) or "none")


def compare_sources(version, old):
    before, after = sources(old), sources(version)
    table = (ROOT / "tests/data/architectures.txt").read_text()
    known = re.findall(r"^architecture (\S+)$", table, re.M)
    new = architectures(after) - architectures(before)
    print(f"## Sources: {CRATE} {old} to {version}")
    listed("Architectures that are new, without rules in src/gguf/loadable", sorted(new - {*known}))
    listed("Architectures that are gone", sorted(architectures(before) - architectures(after)))
    one, other = functions(before), functions(after)
    listed("Functions that are gone", [f"`{one[name]}`" for name in sorted(one.keys() - other)])
    listed("Functions that are new", [f"`{other[name]}`" for name in sorted(other.keys() - one)])
    changed = [name for name in sorted(one.keys() & other) if one[name] != other[name]]
    listed("Functions that changed", [f"`{one[name]}` to `{other[name]}`" for name in changed])
    lines = []
    for name in DEFAULTS:
        differences = difflib.unified_diff(body(before, name), body(after, name), n=0, lineterm="")
        lines += [f"{name}: `{line}`" for line in differences if re.match(r"[+-](?![+-])", line)]
    listed("Defaults that changed", lines)


def measure(folder):
    folder.mkdir(parents=True, exist_ok=True)
    program = Path(os.environ["LLB_PROGRAM"])
    models = [*Path(os.environ["LLB_TEST_MODELS"]).glob("*.gguf")]
    models += Path(os.environ.get("LLB_MODELS", "/nonexistent")).glob("*.gguf")
    infos = {}
    for model in sorted(models):
        command = [str(program), "info", "--json", str(model)]
        info = subprocess.run(command, check=False, capture_output=True, text=True).stdout
        infos[model.name] = json.loads(info) if info.startswith("{") else {"failed": info}
    (folder / "infos.json").write_text(json.dumps(infos, indent=1, sort_keys=True))
    for bench in BENCHES:
        output = subprocess.run(["cargo", "bench", "--quiet", "--bench", bench], check=False,
                                cwd=ROOT, capture_output=True, text=True)  # fmt: skip
        (folder / f"{bench}.txt").write_text(output.stdout + output.stderr)


def leaves(value, path=""):
    if isinstance(value, dict):
        for key, member in value.items():
            yield from leaves(member, f"{path}.{key}" if path else key)
    else:
        yield path, json.dumps(value)


def compare(old, new):
    one, other = (json.loads((folder / "infos.json").read_text()) for folder in (old, new))
    differences = []
    for model in sorted(one.keys() | other):
        before, after = dict(leaves(one.get(model, {}))), dict(leaves(other.get(model, {})))
        for path in sorted(before.keys() | after):
            if before.get(path) != after.get(path):
                differences.append(f"{model}: `{path}`: {before.get(path)} to {after.get(path)}")
    print("## The library")
    listed("What models can do, as llb_model_info reports it", differences)
    for bench in BENCHES:
        print(f"\n### {bench}, before and after\n")
        for folder in (old, new):
            print(f"```text\n{(folder / f'{bench}.txt').read_text().strip()}\n```\n")


def pin(version):
    manifest = ROOT / "Cargo.toml"
    manifest.write_text(PIN.sub(rf"\g<1>{version}", manifest.read_text()))
    subprocess.run(
        ["cargo", "update", "--quiet", CRATE, "--precise", version], check=True, cwd=ROOT
    )


def main(command, *arguments):
    if command == "sources":
        compare_sources(arguments[0], arguments[1] if len(arguments) > 1 else pinned())
    elif command == "measure":
        measure(Path(arguments[0]))
    elif command == "compare":
        compare(*map(Path, arguments))
    elif command == "pin":
        pin(arguments[0])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(*sys.argv[1:]) if len(sys.argv) > 2 else sys.exit(__doc__)
