#!/usr/bin/env python3
"""Installs each file of target/dist in an empty place, runs the first block of its README from
there, and prints what was built, installed and run, and what this system cannot make.

    rehearse.py DIST MODEL VERIFY_PYTHON

MODEL is a scripted model. VERIFY_PYTHON has the packages of provenance.py. Nothing is uploaded.
"""

import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DIST, MODEL, VERIFY_PYTHON = (Path(argument).absolute() for argument in sys.argv[1:4])
VERSION = re.search(r'^version = "(.*)"$', (ROOT / "Cargo.toml").read_text(), re.M)[1]
SDIST = f"llb-{VERSION}.tar.gz"
# Of the checkout, nothing is found by accident.
CLEAN = {
    name: value
    for name, value in os.environ.items()
    if not name.startswith(("LLB_", "CARGO_", "PYTHON", "LD_LIBRARY_PATH"))
}
# What the workflow of a release makes on other systems, or with tools that are not here.
ELSEWHERE = [
    ("wheel for 64-bit ARM, and its library in the jar", "release.yml, job linux"),
    ("wheel for musl, run on Alpine", "release.yml, job musl"),
    ("wheel for Windows, run on Windows", "release.yml, job windows"),
    ("wheel for macOS with Metal", "release.yml, job macos"),
    ("wheels and jars for CUDA and Vulkan", "release.yml, job devices"),
    ("container image", "release.yml, job image"),
    ("signed attestations, uploads", "release.yml, jobs draft and publish-*"),
]


class Absent(Exception):
    """A tool of this row is not on this machine."""


def run(*command, cwd=None, **environment):
    """Runs a command and returns what it prints. Raises RuntimeError if it fails."""
    process = subprocess.run(
        [*map(str, command)],
        cwd=cwd,
        env={**CLEAN, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=3600,
    )
    if process.returncode != 0:
        raise RuntimeError(f"{shlex.join(map(str, command))}\n{process.stdout}")
    return process.stdout


def need(*tools):
    for tool in tools:
        if not shutil.which(tool):
            raise Absent(f"no {tool}")


def first_block(page, language):
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.search(rf"^```{language}\n(.*?)^```", text, re.M | re.S)[1]


def last_line(text):
    return text.strip().splitlines()[-1][:60]


def one(pattern):
    (path,) = DIST.glob(pattern)
    return path


def python_environment(folder):
    run(sys.executable, "-m", "venv", folder / "venv")
    return folder / "venv" / "bin" / "python"


def run_python(python, folder):
    """The first block of the package's page, and that of README.md."""
    shutil.copy(MODEL, folder / "model.gguf")
    for page in ("bindings/python/README.md", "README.md"):
        output = run(python, "-I", "-c", first_block(page, "python"), cwd=folder)
    assert output.strip(), "the block of README.md prints nothing"
    return last_line(run(python, "-I", "-c", "import llb; print(llb.version())", cwd=folder))


def wheel(folder):
    python = python_environment(folder)
    # As from an index: by name, from a folder, without a network or a compiler.
    run(python, "-m", "pip", "install", "-q", "--no-index", f"--find-links={DIST}",
        "--only-binary=:all:", "llb", PATH="/nowhere")  # fmt: skip
    yield
    yield run_python(python, folder)


def sdist(folder):
    python = python_environment(folder)
    (library,) = DIST.parent.glob("release/glibc-*/libllb.so")
    run(python, "-m", "pip", "install", "-q", one(SDIST), LLB_LIBRARY=str(library))
    yield
    yield run_python(python, folder)


def jars(folder):
    need("mvn")
    jdk = run(ROOT / "bindings/java/find-jdk.sh").strip()
    yield
    # An empty local repository is a part of the script.
    output = run(ROOT / "scripts/java-project.sh", MODEL, DIST / "maven", JAVA_HOME=jdk)
    yield last_line(output)


def program(llb):
    """The commands of README.md that need no network, on the scripted model."""
    (info,) = re.findall(r"^llb info \S+", first_block("cli/README.md", "sh"), re.M)
    output = run(llb, *shlex.split(info)[1:-1], MODEL)
    assert "tools  " in output, output
    return last_line(run(llb, "run", MODEL, "Hello!"))


def archive(folder):
    run("tar", "-xzf", one("llb-*-linux-*.tar.gz"), "-C", folder)
    (tree,) = folder.iterdir()
    yield
    compile_c(folder, tree / "lib", tree / "lib" / "pkgconfig")
    yield program(tree / "bin" / "llb")


def compile_c(folder, libraries, pkgconfig, **environment):
    """Compiles and runs the program in C of README.md."""
    need("cc", "pkg-config")
    (folder / "rivers.c").write_text(first_block("README.md", "c"))
    flags = run("pkg-config", "--cflags", "--libs", "llb", PKG_CONFIG_PATH=str(pkgconfig),
                **environment)  # fmt: skip
    run("cc", "rivers.c", *shlex.split(flags), "-o", "rivers", cwd=folder)
    output = run("./rivers", MODEL, cwd=folder, LD_LIBRARY_PATH=str(libraries))
    assert '"usage"' in output, output


def debian(folder):
    need("dpkg")
    root = folder / "root"
    (root / "var/lib/dpkg/updates").mkdir(parents=True)
    (root / "var/lib/dpkg/info").mkdir()
    (root / "var/lib/dpkg/status").touch()
    # What it depends on is this machine's.
    run("dpkg", f"--root={root}", "--force-not-root", "--force-depends", "--force-bad-path",
        "--no-triggers", "--install", one("llb_*.deb"))  # fmt: skip
    yield
    libraries = root / "usr" / "lib" / f"{platform.machine()}-linux-gnu"
    compile_c(folder, libraries, libraries / "pkgconfig", PKG_CONFIG_SYSROOT_DIR=str(root))
    yield program(root / "usr" / "bin" / "llb")


def crates(folder):
    """Builds the program and the first block of the crate's README from the archives."""
    need("cargo")
    for name in ("llb", "llb-cli"):
        run("tar", "-xzf", DIST / f"{name}-{VERSION}.crate", "-C", folder)
    # `llb` is not on crates.io yet: its archive takes the place. Versions and profiles are those of
    # the checkout, so llama.cpp and the crates of others need not be compiled again.
    profiles = (
        (ROOT / "Cargo.toml").read_text().split("\n[profile.release]\n")[1].split("\n[lints")[0]
    )
    (folder / "user" / "src").mkdir(parents=True)
    (folder / "user" / "src" / "main.rs").write_text(first_block("src/README.md", "rust,no_run"))
    (folder / "user" / "Cargo.toml").write_text(
        '[package]\nname = "user"\nedition = "2024"\n'
        f'[dependencies]\nllb = "{VERSION}"\nserde_json = "1"\n'
    )
    (folder / "Cargo.toml").write_text(
        f'[workspace]\nresolver = "3"\nmembers = ["llb-{VERSION}", "llb-cli-{VERSION}", "user"]\n'
        f'[patch.crates-io]\nllb = {{ path = "llb-{VERSION}" }}\n[profile.release]\n{profiles}'
    )
    shutil.copy(ROOT / "Cargo.lock", folder)
    target = folder / "target" / "release"
    for part in ("build", "deps", ".fingerprint"):
        shutil.copytree(DIST.parent / "release" / part, target / part, symlinks=True,
                        copy_function=os.link if part == "deps" else shutil.copy2,
                        ignore=shutil.ignore_patterns("llb-*", "libllb*"))  # fmt: skip
    run("cargo", "build", "--quiet", "--release", "--offline", "-p", "llb-cli", "-p", "user",
        cwd=folder)  # fmt: skip
    (folder / "installed").mkdir()
    shutil.copy(target / "llb", folder / "installed")
    yield
    shutil.copy(MODEL, folder / "model.gguf")
    assert run(target / "user", cwd=folder).strip(), "the block of src/README.md prints nothing"
    yield program(folder / "installed" / "llb")


def papers(folder):
    """Checksums, provenance and SBOM, and that a changed file is refused."""
    verify = [VERIFY_PYTHON, ROOT / "scripts/release/provenance.py", "verify"]
    run("sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS", cwd=DIST)
    output = run(*verify, DIST)
    yield
    copy = folder / "copy"
    shutil.copytree(DIST, copy, copy_function=os.link)
    changed = copy / one("llb-*.whl").name
    content = bytearray(changed.read_bytes())
    content[len(content) // 2] ^= 1
    changed.unlink()
    changed.write_bytes(content)
    try:
        run(*verify, copy)
    except RuntimeError as error:
        assert changed.name in str(error), error
        yield output.strip().replace("\n", "; ")
    else:
        raise RuntimeError("a changed file was not noticed")


ROWS = [
    ("wheel", "llb-*.whl", wheel),
    ("sdist", SDIST, sdist),
    ("jars, with the library", "maven/dev/llb/llb-natives/*/*.jar", jars),
    ("archive: program, library", "llb-*-linux-*.tar.gz", archive),
    ("package for Debian", "llb_*.deb", debian),
    ("crates llb, llb-cli", "llb-*.crate", crates),
    ("checksums, provenance, SBOM", "SHA256SUMS", papers),
]


def rehearse(pattern, check):
    """The columns of a row, and the error if there is one."""
    if not list(DIST.glob(pattern)):
        return ["not here", "", "", "not in target/dist"], None
    columns = ["yes", "no", "no", ""]
    with tempfile.TemporaryDirectory(dir=DIST.parent) as name:
        try:
            steps = check(Path(name))
            next(steps)
            columns[1] = "yes"
            columns[3] = next(steps)
            columns[2] = "yes"
        except Absent as absent:
            columns[3] = f"not here: {absent}"
        except Exception as error:
            columns[3] = "FAILED"
            return columns, f"{type(error).__name__}: {error}"
    return columns, None


def main():
    table, errors = [("", "built", "installed", "ran", "")], []
    for title, pattern, check in ROWS:
        print(f"    {title}", flush=True)
        columns, error = rehearse(pattern, check)
        table.append((title, *columns))
        if error:
            errors.append(f"{title}: {error}")
    table += [(title, "not here", "", "", job) for title, job in ELSEWHERE]
    widths = [max(len(row[at]) for row in table) for at in range(4)]
    print()
    for row in table:
        print("  ".join([*(row[at].ljust(widths[at]) for at in range(4)), row[4]]).rstrip())
    print(*errors, sep="\n", file=sys.stderr)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
