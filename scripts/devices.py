#!/usr/bin/env python3
"""Compiles a backend of ggml for devices: libllb-vulkan.so, libllb-cuda.so or libllb-rpc.so beside
libllb.so.

    scripts/devices.py FOLDER rpc
    scripts/devices.py FOLDER vulkan
    scripts/devices.py FOLDER cuda [--architectures "86-real 90"]

FOLDER is cargo's folder of the profile, with libllb.so. The sources are those of llama-cpp-sys-2,
compiled with the flags that it has used for ggml-base. Shaders and objects are kept in
FOLDER/devices, and used again as long as their commands are the same.

Vulkan needs glslc, libvulkan.so, and the headers of Vulkan (1.4.309 or later, with vulkan.hpp) and
SPIR-V. VULKAN_SDK names a folder with `include`, `lib` and `bin` that is searched before the
system's.

CUDA needs the toolkit in CUDA_HOME: nvcc, the static runtime, CCCL and cuBLAS. Architectures are
written as in CMake: 90 is machine code and PTX, 90-real or 90-virtual one of them.
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
# The functions of sockets and threads that device_rpc.cpp redirects.
WRAPPED_FOR_RPC = ["accept", "connect", "listen", "pthread_create", "recv", "send"]
# The first headers that ggml-vulkan can be compiled with, as VK_HEADER_VERSION of Vulkan 1.4.
MIN_HEADERS = 309
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

# Types of KV caches, and the pairs (of keys and values) for which flash attention is compiled: those
# of llama.cpp's default build.
CACHE_TYPES = ["q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "bf16", "f16"]
ATTENTION = ["q4_0-q4_0", "q8_0-q8_0", "f16-f16", "bf16-bf16"]
# llama.cpp's default for CUDA 13: Turing to Blackwell.
ARCHITECTURES = ["75-virtual", "80-virtual", "86-real", "89-real", "90-virtual", "120a-real",
                 "121a-real"]


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
        if version < MIN_HEADERS:
            sys.exit(f"{found[0]}: Vulkan headers of version {version}, needed: {MIN_HEADERS}; "
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


def base_command(build):
    """The folder of ggml's sources, and the command of one of them without its file."""
    base = kernels.commands_of(build, [], "ggml-base")
    file, command = next(item for item in base.items() if item[0].endswith("/ggml-backend.cpp"))
    return pathlib.Path(file).parent, command


def build_rpc(folder, cache, build, pool):
    sources, command = base_command(build)
    sources /= "ggml-rpc"
    # A result that did not come is zero.
    command = [*command, "-fvisibility=hidden", "-fvisibility-inlines-hidden",
               "-ftrivial-auto-var-init=zero", f"-I{sources}", f"-I{sources.parent}"]
    content = b"".join(file.read_bytes() for file in sorted(sources.iterdir()))
    glue = [*command, *kernels.identity_of(build, "rpc"),
            "-DLLB_DEVICE_REGISTRATION=llb_rpc_reg"]
    jobs = [pool.submit(kernels.compile_one, cache, str(source), arguments, content + own)
            for source, arguments, own in (
                (sources / "transport.cpp", command, b""),
                (kernels.SOURCES / "device_rpc.cpp", command, kernels.contents()),
                (kernels.SOURCES / "device_file.cpp", glue, kernels.contents()))]
    objects = [job.result() for job in jobs]
    wrapped = [f"-Wl,--wrap={name}" for name in WRAPPED_FOR_RPC]
    return kernels.link(folder / "libllb-rpc.so", cache, ENTRY, command[0], objects, wrapped,
                        build["libc"])


def build_vulkan(folder, cache, build, pool):
    tools = Tools()
    sources, command = base_command(build)
    sources /= "ggml-vulkan"
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


def target_of(architecture):
    """The arguments of nvcc for an architecture as CMake writes it."""
    found = re.fullmatch(r"(\d+[af]?)(-real|-virtual)?", architecture)
    if not found:
        sys.exit(f"{architecture!r}: not an architecture such as 90, 86-real or 80-virtual")
    number, kind = found.groups()
    codes = [f"sm_{number}"] if kind != "-virtual" else []
    codes += [f"compute_{number}"] if kind != "-real" else []
    return ["-gencode", f"arch=compute_{number},code=[{','.join(codes)}]"]


def attention(sources):
    """The sources and definitions for the types of KV caches that flash attention reads."""
    names = [f"{key}-{value}" for value in CACHE_TYPES for key in CACHE_TYPES]
    defined = [f'-DGGML_CUDA_FA_QUANTS="{",".join(ATTENTION)}"']
    for name in names:
        macro = name.upper().replace("-", "_")
        defined.append(f"-DGGML_CUDA_FA_{macro}={int(name in ATTENTION)}")
    folder = sources / "template-instances"
    return [folder / f"fattn-vec-instance-{name}.cu" for name in ATTENTION], defined


def stub_of_driver(cache, compiler, objects):
    """Writes a libcuda.so.1 with the functions that the objects call, to link with. The real one
    comes with the driver. Returns its path."""
    listed = subprocess.run(["nm", "-u", *map(str, objects)], capture_output=True, text=True,
                            check=True).stdout
    names = sorted(set(re.findall(r"\bU (cu[A-Z]\w*)$", listed, re.MULTILINE)))
    source = cache / "libcuda.c"
    source.write_text("".join(f"void {name}(void) {{}}\n" for name in names))
    target = cache / "libcuda.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-x", "c", str(source), "-o", str(target),
                    f"-Wl,-soname,{target.name}"], check=True)
    return target


def build_cuda(folder, cache, build, pool, architectures):
    home = pathlib.Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"))
    nvcc = home / "bin/nvcc"
    if not nvcc.exists():
        sys.exit(f"{nvcc}: does not exist; name the toolkit in CUDA_HOME (docs/backends.md, CUDA)")
    base, host = base_command(build)
    sources = base / "ggml-cuda"
    vectors, defined = attention(sources)
    # The preprocessor's arguments of the host's compiler. The rest is in nvcc's own terms.
    shared = [word for word in host if word.startswith(("-D", "-I"))] + [f"-I{base}"]
    shared += [*defined, "-DGGML_CUDA_USE_GRAPHS"]
    flags = "-fPIC,-w,-fvisibility=hidden,-fvisibility-inlines-hidden,-ffunction-sections"
    command = [str(nvcc), "-ccbin", host[0], "-std=c++17", "-O3", "-w", "-use_fast_math",
               "-extended-lambda", "-compress-mode=size", *shared, "-Xcompiler", flags,
               *(word for name in architectures for word in target_of(name))]
    files = sorted(sources.glob("*.cu")) + vectors
    for pattern in ("fattn-tile*.cu", "fattn-mma*.cu", "mmq*.cu", "mmf*.cu"):
        files += sorted((sources / "template-instances").glob(pattern))
    content = b"".join(header.read_bytes() for header in sorted(sources.rglob("*.cuh")))
    jobs = [pool.submit(kernels.compile_one, cache, str(file), command, content) for file in files]
    own = kernels.SOURCES / "device_cuda.cu"
    jobs.append(pool.submit(kernels.compile_one, cache, str(own), command, own.read_bytes()))
    glue = [*host, "-fvisibility=hidden", "-fvisibility-inlines-hidden",
            *kernels.identity_of(build, "cuda"), "-DLLB_DEVICE_REGISTRATION=ggml_backend_cuda_reg",
            "-DLLB_DEVICE_START=llb_cuda_start", f"-I{base}"]
    jobs.append(pool.submit(kernels.compile_one, cache, str(kernels.SOURCES / "device_file.cpp"),
                            glue, kernels.contents()))
    objects = [job.result() for job in jobs]
    library = home / ("lib64" if (home / "lib64").is_dir() else "lib")
    cublas = next(iter(sorted(library.glob("libcublas.so.*"))), library / "libcublas.so")
    wrapped = re.findall(r"^LLB_RELEASE\((\w+)", own.read_text(), re.MULTILINE)
    libraries = [str(library / "libcudart_static.a"), str(cublas),
                 str(stub_of_driver(cache, "cc", objects)), "-lrt", "-ldl",
                 *(f"-Wl,--wrap={name}" for name in ["ggml_abort", *wrapped])]
    return kernels.link(folder / "libllb-cuda.so", cache, ENTRY, host[0], objects, libraries)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("name", choices=["cuda", "rpc", "vulkan"])
    parser.add_argument("--architectures", default=" ".join(ARCHITECTURES), help="of CUDA")
    options = parser.parse_args()
    folder = options.folder.resolve()
    build = kernels.build_of(folder)
    cache = folder / "devices"
    cache.mkdir(exist_ok=True)
    start = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        if options.name == "rpc":
            target = build_rpc(folder, cache, build, pool)
        elif options.name == "vulkan":
            target = build_vulkan(folder, cache, build, pool)
        else:
            target = build_cuda(folder, cache, build, pool, options.architectures.split())
    size = target.stat().st_size / 1e6
    print(f"    {target.name}  {size:.1f} MB  {time.monotonic() - start:.0f} s", flush=True)


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as error:
        # The command has printed the reason.
        sys.exit(f"failed: {error.cmd[0]} ({error.returncode})")
