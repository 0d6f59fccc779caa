#!/usr/bin/env python3
"""Compiles ggml's kernels for other processors: libllb-cpu-NAME.so beside libllb.so.

    scripts/kernels.py FOLDER [--best] [NAME...]

FOLDER is cargo's folder of the profile, with libllb.so. Without names all variants of the library's
architecture (src/llama/kernels/variants) are compiled, but the one in libllb.so; with --best the
one that this processor would choose, and those named. Each source of ggml-cpu is compiled by the
command that llama-cpp-sys-2 has used for it, with the instructions of the variant in place of its
own. Objects are kept in FOLDER/kernels, and used again as long as their command is the same.
"""

import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import shlex
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCES = ROOT / "src/llama/kernels"
ENTRY = "llb_kernels_open"
# Linux's names of features in /proc/cpuinfo, where they are others than the compilers'.
NAMES_IN_LINUX = {"dotprod": "asimddp", "fp16": "asimdhp"}


def variants(architecture):
    """Name to features, from the slowest to the fastest."""
    lines = (SOURCES / f"variants/{architecture}.txt").read_text().splitlines()
    words = [line.split() for line in lines if line and not line.startswith("#")]
    return {name: features for name, *features in words}


def build_of(folder):
    """What build.rs has written for the last library in the folder."""
    found = sorted(folder.glob("build/llb-*/out/kernels.json"), key=os.path.getmtime)
    if not found or not (folder / "libllb.so").exists():
        sys.exit(f"{folder}: no library; run: make lib")
    build = json.loads(found[-1].read_text())
    build["commands"] = folder / "build" / build["engine"] / "out/build/compile_commands.json"
    return build


def supported():
    """The features of this processor, without punctuation."""
    with open("/proc/cpuinfo") as info:
        flags = next((line for line in info if line.startswith(("flags", "Features"))), "").split()
    return {flag.replace("_", "") for flag in flags}


def best(build):
    here = supported()
    name_of = lambda feature: NAMES_IN_LINUX.get(feature, feature.replace(".", ""))
    runs = lambda features: all(name_of(feature) in here for feature in features)
    names = [name for name, features in variants(build["architecture"]).items() if runs(features)]
    return [name for name in names[-1:] if name != build["built_in"]]


def flags_of(architecture, features):
    """The compiler's flags for the oldest processors with these features."""
    if architecture == "aarch64":
        # Processors with any of the features have at least ARMv8.2, and GCC 12 needs that for i8mm.
        return ["-march=" + "+".join(["armv8.2-a" if features else "armv8-a", *features])]
    return ["-m64", "-march=x86-64"] + [f"-m{feature}" for feature in features]


def commands_of(build, features, library="ggml-cpu"):
    """Maps each source of a library of ggml to its command, without the output."""
    entries = json.loads(build["commands"].read_text())
    commands = {}
    for entry in entries:
        words = shlex.split(entry["command"])
        if f"/{library}.dir/" not in words[words.index("-o") + 1]:
            continue
        output = words.index("-o")
        words = words[:output] + words[output + 2:]
        kept = [word for word in words if not word.startswith("-m") and word != "-c"]
        kept.remove(entry["file"])
        commands[entry["file"]] = kept + flags_of(build["architecture"], features)
    if not commands:
        sys.exit(f"{build['commands']}: no sources of {library}; the layout of llama.cpp has changed")
    return commands


def compile_one(cache, source, command, content=b""):
    """Compiles a source unless its object exists. Returns the object."""
    key = hashlib.sha256("\0".join([*command, source]).encode() + content).hexdigest()[:24]
    target = cache / f"{pathlib.Path(source).name}.{key}.o"
    if not target.exists():
        part = target.with_suffix(f".{os.getpid()}.part")
        subprocess.run([*command, "-c", source, "-o", str(part)], check=True)
        part.rename(target)
    return target


def libraries_of(compiler, libc):
    """The compiler that links, and its arguments for libraries. scripts/musl.sh has those of musl."""
    if libc != "musl":
        return compiler, ["-static-libstdc++", "-lm", "-lpthread"]
    folder = pathlib.Path(compiler).parent / "lib"
    return "cc", ["-nostdlib", str(folder / "crtbeginS.o"), f"-L{folder}", "-lstdc++", "-lgcc_s",
                  "-lc", str(folder / "crtendS.o")]


def link(target, cache, entry, compiler, objects, arguments, libc="gnu"):
    """Links a file that exports its entry alone. Notes in `cache` how, for `relink`."""
    how = {"entry": entry, "compiler": compiler, "objects": [*map(str, objects)],
           "arguments": arguments, "libc": libc}
    (cache / f"{target.name}.json").write_text(json.dumps(how))
    return run_linker(target, cache, **how)


def relink(name, cache, output, arguments):
    """Links a file once more, into `output` and with further arguments for the linker."""
    noted = cache / f"{name}.json"
    if not noted.exists():
        sys.exit(f"{noted}: does not exist; remove {name}, or compile it again (docs/backends.md)")
    how = json.loads(noted.read_text())
    how["arguments"] += arguments
    return run_linker(output / name, cache, **how)


def run_linker(target, cache, entry, compiler, objects, arguments, libc):
    script = cache / f"{entry}.map"
    script.write_text("{ global: " + entry + "; local: *; };\n")
    compiler, libraries = libraries_of(compiler, libc)
    part = target.with_suffix(".part")
    options = ["-z,defs", "-z,relro", "-z,now", "-z,nodelete", "-Bsymbolic", "--gc-sections",
               "--as-needed", "--build-id", f"-soname,{target.name}", f"--version-script={script}"]
    subprocess.run(
        [compiler, "-shared", "-o", str(part), *objects,
         *(f"-Wl,{option}" for option in options), *arguments, *libraries], check=True)
    part.rename(target)
    return target


def identity_of(build, name):
    """Definitions for loaded_file.h."""
    return [f'-DLLB_FILE_IDENTITY="{build["identity"]}"', f'-DLLB_FILE_NAME="{name}"']


def contents():
    """The sources of llb that are compiled into a file."""
    files = [file for file in sorted(SOURCES.iterdir()) if file.suffix in (".cpp", ".h")]
    return b"".join(file.read_bytes() for file in files)


def build_variant(folder, build, name, features, pool):
    cache = folder / "kernels"
    cache.mkdir(exist_ok=True)
    commands = commands_of(build, features)
    compiler = next(command[0] for source, command in commands.items() if source.endswith(".cpp"))
    glue = [compiler, "-std=c++17", "-O2", "-fPIC", "-fvisibility=hidden",
            *flags_of(build["architecture"], []), *identity_of(build, name)]
    jobs = [pool.submit(compile_one, cache, *item) for item in commands.items()]
    jobs.append(pool.submit(compile_one, cache, str(SOURCES / "variant.cpp"), glue, contents()))
    objects = [job.result() for job in jobs]
    target = folder / f"libllb-cpu-{name}.so"
    return link(target, cache, ENTRY, compiler, objects, [], build["libc"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--best", action="store_true", help="what this processor would choose")
    options = parser.parse_intermixed_args()
    build = build_of(options.folder)
    known = variants(build["architecture"])
    names = options.names or [name for name in known if name != build["built_in"]]
    if options.best:
        names = best(build) + options.names
    unknown = [name for name in names if name not in known]
    if unknown:
        sys.exit(f"unknown: {', '.join(unknown)}; there are: {', '.join(known)}")
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for name in names:
            start = time.monotonic()
            target = build_variant(options.folder, build, name, known[name], pool)
            size = target.stat().st_size / 1e6
            print(f"    {target.name}  {size:.1f} MB  {time.monotonic() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
