"""The packages and repositories that hold the templates.

In: rows of tests/data/conformance/templates.tsv. Out: files of templates/, each with the SHA-256 of its
row. A package is downloaded by its registry's own client and kept in the cache; a file of a repository
is downloaded by its address. Nothing of a package is installed or run.
"""

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from literals import texts
from models import MB, Failed, say

# pip runs no code of a source package: the backend of this folder answers for it.
SOURCE = {
    "options": ("--no-binary", ":all:", "--no-build-isolation", "--use-pep517"),
    "variables": {"PYTHONPATH": str(HERE / "source_package")},
}
# Seconds without an answer from a server.
URL_TIMEOUT = 30


def missing_of(rows, folder):
    """The rows whose template is not in the folder with the right bytes."""

    def is_here(row):
        path = folder / f"{row['name']}.jinja"
        return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == row["sha256"]

    return [row for row in rows if not is_here(row)]


class Packages:
    """Downloads packages into `cache` and copies their templates into `folder`."""

    def __init__(self, cache, folder, pip, progress):
        self.cache, self.folder, self.pip, self.progress = cache, folder, pip, progress
        self.unreachable = set()

    def fetch(self, package, version, rows):
        """Writes the templates of one package. Fails with what could not be done."""
        kind, _, name = package.partition(":")
        label = f"{name} {version}" + (" (source)" if kind == "pypi-source" else "")
        started = time.monotonic()
        if kind == "git":
            found = self.from_repository(name, version, rows)
        elif kind in ("pypi", "pypi-source", "npm"):
            archive = self.archive(kind, name, version, label)
            self.progress.show(f"  {label}: reading")
            found = self.from_archive(archive, rows)
        else:
            raise Failed("no public address is known")
        self.progress.clear()
        seconds = time.monotonic() - started
        say(f"  {label}: {found} of {len(rows)} templates, {seconds:.0f} s")
        if found < len(rows):
            raise Failed("the files have other bytes than the table says, or do not exist")

    def archive(self, kind, name, version, label):
        """The package's file in the cache; downloaded unless it is there."""
        place = self.cache / f"{kind}-{name}-{version}".replace("/", "-")
        if place.is_file():
            return place
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=self.cache) as temporary:
            temporary = Path(temporary)
            if kind == "npm":
                file = self.npm_pack(f"{name}@{version}", temporary)
            else:
                options = SOURCE if kind == "pypi-source" else {}
                seen = lambda size: self.progress.show(f"  {label}: downloading, {size // MB} MB")
                file = self.pip.download(f"{name}=={version}", temporary, seen, **options)
            os.replace(file, place)
        return place

    def npm_pack(self, requirement, folder):
        npm = shutil.which("npm")
        if npm is None:
            raise Failed("npm is not installed")
        command = [npm, "pack", "--silent", "--ignore-scripts", "--pack-destination", str(folder), requirement]
        run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        files = list(folder.glob("*.tgz"))
        if run.returncode != 0 or len(files) != 1:
            raise Failed(f"npm pack failed: {run.stdout.strip()[-300:]}")
        return files[0]

    def from_archive(self, archive, rows):
        paths = {row["path"] for row in rows}
        try:
            files = dict(wanted_files(archive, paths))
        except (OSError, EOFError, zipfile.BadZipFile, tarfile.TarError) as error:
            archive.unlink()
            raise Failed(f"the downloaded package cannot be read and was removed: {error}") from error
        return sum(self.save(path, data, rows) for path, data in files.items())

    def from_repository(self, repository, revision, rows):
        if repository.split("/")[2] in self.unreachable:
            raise Failed(f"{repository.split('/')[2]} cannot be reached")
        found = 0
        for path in dict.fromkeys(row["path"] for row in rows):
            self.progress.show(f"  {repository}: {path}")
            with contextlib.suppress(urllib.error.HTTPError):
                found += self.save(path, self.download(f"{repository}/raw/{revision}/{path}"), rows)
        return found

    def download(self, address):
        try:
            with urllib.request.urlopen(address, timeout=URL_TIMEOUT) as reply:
                return reply.read()
        except urllib.error.HTTPError:
            raise
        except OSError as error:
            host = address.split("/")[2]
            self.unreachable.add(host)
            raise Failed(f"{host} cannot be reached: {error}") from error

    def save(self, path, data, rows):
        """Saves the rows of this file whose SHA-256 one of its texts has, and counts them."""
        wanted = {}
        for row in rows:
            if row["path"] == path:
                wanted.setdefault(row["sha256"], []).append(row["name"])
        found = 0
        for text in texts(path, data):
            for name in wanted.pop(hashlib.sha256(text).hexdigest(), ()):
                new = self.folder / f"{name}.jinja.new"
                new.write_bytes(text)
                os.replace(new, self.folder / f"{name}.jinja")
                found += 1
            if not wanted:
                break
        return found


def wanted_files(archive, paths):
    """The files of a wheel, a source package or an npm package; the latter two have a root folder."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as wheel:
            for path in paths & set(wheel.namelist()):
                yield path, wheel.read(path)
        return
    with tarfile.open(archive) as package:
        for member in package:
            path = member.name.partition("/")[2]
            if path in paths and member.isfile():
                yield path, package.extractfile(member).read()
