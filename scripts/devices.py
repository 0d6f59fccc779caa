#!/usr/bin/env python3
"""Compiles a backend of ggml for devices: libllb-vulkan.so beside libllb.so.

    scripts/devices.py FOLDER vulkan

FOLDER is cargo's folder of the profile, with libllb.so. The sources are those of llama-cpp-sys-2,
compiled with the flags that it has used for ggml-base. It needs glslc, libvulkan.so, and the
headers of Vulkan (1.4.309 or later, with vulkan.hpp) and SPIR-V. VULKAN_SDK names a folder with
`include`, `lib` and `bin` that is searched before the system's. Shaders and objects are kept in
FOLDER/devices, and used again as long as their commands are the same.
"""

import argparse
import concurrent.futures
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

import kernels

ENTRY = "llb_device_open"
# The first headers that ggml-vulkan can be compiled with, as VK_HEADER_VERSION of Vulkan 1.4.
LEAST_HEADERS = 309
# What glslc may lack: ggml's test, and the macro that is defined if it passes.
FEATURES = {
    "coopmat": "GGML_VULKAN_COOPMAT_GLSLC_SUPPORT",
    "coopmat2": "GGML_VULKAN_COOPMAT2_GLSLC_SUPPORT",
    "coopmat2_decode_vector": "GGML_VULKAN_COOPMAT2_DECODE_VECTOR_GLSLC_SUPPORT",
    "integer_dot": "GGML_VULKAN_INTEGER_DOT_GLSLC_SUPPORT",
    "bfloat16": "GGML_VULKAN_BFLOAT16_GLSLC_SUPPORT",
    "float_e2m1": "GGML_VULKAN_FLOAT_E2M1_GLSLC_SUPPORT",
    "float_e4m3": "GGML_VULKAN_FLOAT_E4M3_GLSLC_SUPPORT",
}


class Tools:
    """glslc and the headers, from VULKAN_SDK or the system."""

    def __init__(self):
        sdk = os.environ.get("VULKAN_SDK")
        roots = [pathlib.Path(root) for root in (sdk, "/usr/local", "/usr") if root]
        path = os.pathsep.join([*(str(root / "bin") for root in roots), os.environ["PATH"]])
        self.glslc = shutil.which("glslc", path=path)
        found = [root / "include" for root in roots if (root / "include/vulkan/vulkan.hpp").exists()]
        spirv = [root / "include" for root in roots
                 if (root / "include/spirv/unified1/spirv.hpp").exists()]
        missing = [name for name, value in (
            ("glslc", self.glslc), ("the headers of Vulkan with vulkan.hpp", found),
            ("the headers of SPIR-V", spirv)) if not value]
        if missing:
            sys.exit(f"missing: {'; '.join(missing)} (docs/backends.md, Vulkan)")
        core = (found[0] / "vulkan/vulkan_core.h").read_text()
        version = int(re.search(r"^#define VK_HEADER_VERSION (\d+)$", core, re.MULTILINE)[1])
        if version < LEAST_HEADERS:
            sys.exit(f"{found[0]}: Vulkan headers of version {version}, needed: {LEAST_HEADERS}; "
                     "name newer ones in VULKAN_SDK (docs/backends.md, Vulkan)")
        self.includes = list(dict.fromkeys([found[0], spirv[0]]))
        self.libraries = [root / "lib" for root in roots[:1] if sdk and (root / "lib").is_dir()]

    def features(self, shaders):
        """The macros of what glslc supports."""
        defined = []
        for test, macro in FEATURES.items():
            file = shaders / f"feature-tests/{test}.comp"
            if not file.exists():
                continue
            command = [self.glslc, "-o", os.devnull, "-fshader-stage=compute",
                       "--target-env=vulkan1.3", str(file)]
            tried = subprocess.run(command, capture_output=True, text=True, check=False)
            if "extension not supported" not in tried.stderr:
                defined.append(f"-D{macro}")
        return defined


def write_once(target, write):
    """Calls `write` with another name for a file that does not exist yet."""
    if not target.exists():
        part = target.with_suffix(f".{os.getpid()}.part")
        write(part)
        part.rename(target)
    return target


def compile_shaders(cache, compiler, tools, sources):
    """Compiles the shaders to C++ sources. Returns these and the folder of their header."""
    shaders = sources / "vulkan-shaders"
    defined = tools.features(shaders)
    version = subprocess.run([tools.glslc, "--version"], capture_output=True, check=True).stdout
    content = b"".join(file.read_bytes() for file in sorted(shaders.iterdir()) if file.is_file())
    key = hashlib.sha256(content + version + " ".join(defined).encode()).hexdigest()[:24]
    folder = cache / f"shaders-{key}"
    (folder / "spv").mkdir(parents=True, exist_ok=True)
    run = lambda *command: subprocess.run([*map(str, command)], check=True)
    generator = write_once(folder / "vulkan-shaders-gen", lambda part: run(
        compiler, "-std=c++17", "-O2", *defined, shaders / "vulkan-shaders-gen.cpp", "-o", part,
        "-lpthread"))
    header = folder / "ggml-vulkan-shaders.hpp"
    write_once(header, lambda part: run(
        generator, "--output-dir", folder / "spv", "--target-hpp", part))
    compiled = []
    # The generator itself runs glslc side by side.
    for source in sorted(shaders.glob("*.comp")):
        compiled.append(write_once(folder / f"{source.name}.cpp", lambda part, source=source: run(
            generator, "--glslc", tools.glslc, "--source", source, "--output-dir", folder / "spv",
            "--target-hpp", header, "--target-cpp", part)))
    shutil.rmtree(folder / "spv", ignore_errors=True)
    return compiled, folder, defined


def build_vulkan(folder, build, pool):
    cache = folder / "devices"
    cache.mkdir(exist_ok=True)
    tools = Tools()
    base = kernels.commands_of(build, [], "ggml-base")
    file, command = next(item for item in base.items() if item[0].endswith("/ggml-backend.cpp"))
    sources = pathlib.Path(file).parent / "ggml-vulkan"
    shaders, generated, defined = compile_shaders(cache, command[0], tools, sources)
    command = [*command, "-fvisibility=hidden", "-fvisibility-inlines-hidden", *defined,
               *(f"-I{include}" for include in (*tools.includes, generated, sources.parent))]
    content = b"".join(header.read_bytes() for header in sorted(sources.glob("*.h")))
    jobs = [pool.submit(kernels.compile_one, cache, str(source), command, content)
            for source in sorted(sources.glob("*.cpp"))]
    jobs += [pool.submit(kernels.compile_one, cache, str(source), command) for source in shaders]
    glue = [*command, *kernels.identity_of(build, "vulkan"),
            "-DLLB_DEVICE_REGISTRATION=ggml_backend_vk_reg",
            "-DLLB_DEVICE_START=ggml_vk_instance_init"]
    jobs.append(pool.submit(kernels.compile_one, cache, str(kernels.SOURCES / "device_file.cpp"),
                            glue, kernels.contents()))
    objects = [job.result() for job in jobs]
    libraries = [*(f"-L{library}" for library in tools.libraries), "-lvulkan"]
    return kernels.link(folder / "libllb-vulkan.so", cache, ENTRY, command[0], objects, libraries)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("name", choices=["vulkan"])
    options = parser.parse_args()
    folder = options.folder.resolve()
    build = kernels.build_of(folder)
    start = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        target = build_vulkan(folder, build, pool)
    size = target.stat().st_size / 1e6
    print(f"    {target.name}  {size:.1f} MB  {time.monotonic() - start:.0f} s", flush=True)


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as error:
        # The command has printed the reason.
        sys.exit(f"failed: {error.cmd[0]} ({error.returncode})")
