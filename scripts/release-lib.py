#!/usr/bin/env python3
"""Links libllb.so, its kernels and devices once more, for systems with an older glibc.

    scripts/release-lib.py FOLDER GLIBC
    scripts/release-lib.py --check GLIBC FILE...

FOLDER is cargo's folder of the profile, after `make lib`. The files are written to
FOLDER/glibc-GLIBC. Their objects are those of libllb.a, FOLDER/kernels and FOLDER/devices, so the
code is the same. What differs are the C libraries of the linker: stubs of that version, which zig writes (the
package ziglang, for this Python). glibc/newer.c has what the objects need and that version lacks.

Fails if a file needs a later version. --check does only that.
"""

import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile

import kernels

SCRIPTS = pathlib.Path(__file__).resolve().parent
# The names for -l. In an older glibc, each of them contains functions that are in libc.so.6 since
# 2.34.
LIBRARIES = ["m", "pthread", "dl", "rt", "util"]


def run(*command, **options):
    return subprocess.run([*map(str, command)], check=True, text=True, **options)


def output_of(*command):
    return run(*command, stdout=subprocess.PIPE).stdout


def needed_glibc(file):
    """The latest version of glibc whose symbols a file uses, as a tuple."""
    found = re.findall(r"\bGLIBC_([0-9.]+)", output_of("objdump", "-T", file))
    return max(tuple(map(int, version.split("."))) for version in found)


def check(files, version):
    most = tuple(map(int, version.split(".")))
    for file in files:
        needed = needed_glibc(file)
        if needed > most:
            sys.exit(f"{file}: needs glibc {'.'.join(map(str, needed))}, more than {version}")


def compiler(architecture):
    """The C compiler for an architecture. Debian's for another one than that of this machine."""
    is_own = architecture == platform.machine()
    return os.environ.get("CC", "cc") if is_own else f"{architecture}-linux-gnu-gcc"


def write_stubs(folder, version, architecture):
    """Writes the stubs of the C libraries, by linking a program with zig."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as cache:
        source = pathlib.Path(cache, "empty.c")
        source.write_text("int main(void) { return 0; }\n")
        caches = {"ZIG_GLOBAL_CACHE_DIR": cache, "ZIG_LOCAL_CACHE_DIR": cache}
        target = f"{architecture}-linux-gnu.{version}"
        run(sys.executable, "-m", "ziglang", "cc", "-target", target, source, "-o",
            source.with_suffix(""), env={**os.environ, **caches})
        for pattern in ("libc_nonshared.a", "lib*.so.*"):
            for file in pathlib.Path(cache).rglob(pattern):
                shutil.copy2(file, folder)
    for name in LIBRARIES:
        stub = next(folder.glob(f"lib{name}.so.*"))
        (folder / f"lib{name}.so").symlink_to(stub.name)
    loader = next(folder.glob("libld.so.*"))
    (folder / "libc.so").write_text(
        f"GROUP ( libc.so.6 libc_nonshared.a AS_NEEDED ( {loader.name} ) )\n")
    newer = folder / "newer.o"
    run(compiler(architecture), "-O2", "-fPIC", "-Wall", "-Werror", "-c",
        SCRIPTS / "glibc/newer.c", "-o", newer)
    return [f"-L{folder}", str(newer)]


def exports_of(file):
    lines = output_of("nm", "-D", "--defined-only", file).splitlines()
    return sorted(line.split()[-1].split("@")[0] for line in lines)


def link_library(folder, output, stubs, architecture):
    """Links libllb.a as cargo links libllb.so: with the arguments of build.rs and its exports."""
    exports = exports_of(folder / "libllb.so")
    script = stubs[0][2:] + "/exports.map"
    pathlib.Path(script).write_text("{ global: " + "; ".join(exports) + "; local: *; };\n")
    # The folder ends with a hash. `llb-cli-...` is that of the program.
    outputs = folder.glob("build/llb-" + "[0-9a-f]" * 16 + "/output")
    newest = max(outputs, key=os.path.getmtime)
    own = re.findall(r"^cargo:rustc-(?:cdylib-)?link-arg=(.*)$", newest.read_text(), re.MULTILINE)
    # The exports come from an archive here, too. The version script hides all others.
    own.remove("-Wl,--exclude-libs,ALL")
    run(compiler(architecture), "-shared", "-nodefaultlibs", "-o", output / "libllb.so",
        *(f"-Wl,-u,{name}" for name in exports), folder / "libllb.a", *stubs, *own,
        "-Wl,-O1,--gc-sections,--as-needed,--strip-debug,--build-id,-z,defs",
        f"-Wl,--version-script={script}", "-lgcc_s", *(f"-l{name}" for name in LIBRARIES), "-lc")
    if exports_of(output / "libllb.so") != exports:
        sys.exit(f"{output}/libllb.so: other exports than {folder}/libllb.so")


def link_files(folder, output, stubs):
    """Relinks the kernels and devices that are beside the library."""
    for file in sorted(folder.glob("libllb-*.so")):
        cache = folder / ("kernels" if file.name.startswith("libllb-cpu-") else "devices")
        kernels.relink(file.name, cache, output, stubs)


def main():
    if len(sys.argv) > 3 and sys.argv[1] == "--check":
        return check(sys.argv[3:], sys.argv[2])
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    folder, version = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2]
    output = folder / f"glibc-{version}"
    shutil.rmtree(output, ignore_errors=True)
    build = kernels.build_of(folder)
    architecture = build["architecture"]
    stubs = write_stubs(output / "stubs", version, architecture)
    link_library(folder, output, stubs, architecture)
    link_files(folder, output, stubs)
    (output / "libllb.so.1").symlink_to("libllb.so")
    files = sorted(output.glob("*.so"))
    check(files, version)
    for file in files:
        needed = ".".join(map(str, needed_glibc(file)))
        print(f"    {file.name}  {file.stat().st_size / 1e6:.1f} MB  glibc {needed}")


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as error:
        # The command has printed the reason.
        sys.exit(f"failed: {error.cmd[0]} ({error.returncode})")
