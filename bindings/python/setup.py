"""Copies the shared library into the wheel.

The library named by LLB_LIBRARY, or else ../../target/release/libllb.so of a checkout, becomes
llb/_lib/libllb.so, in a wheel for the library's platform and any Python 3. In a checkout without a
library the wheel is pure Python and searches for one on first use. A source distribution has no
checkout to build the library from, so it needs one, or that of the system. An editable install
copies nothing and uses the build of the checkout.

The package's page is README.md. Where pyproject.toml has the address of the repository
(scripts/repository.py), the links to its other files go there.
"""

import ctypes.util
import os
import posixpath
import re
import shutil
import sys
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

REPOSITORY = Path(__file__).resolve().parents[2]
NAME = {"darwin": "libllb.dylib", "win32": "llb.dll"}.get(sys.platform, "libllb.so")
LIBRARY = Path(os.environ.get("LLB_LIBRARY") or REPOSITORY / "target" / "release" / NAME)
# A library for Windows is packed on another system.
IS_CROSS_WINDOWS = LIBRARY.suffix == ".dll" and sys.platform != "win32"
if IS_CROSS_WINDOWS:
    NAME = "llb.dll"
# ELF's numbers of the architectures that a wheel can be tagged with.
ARCHITECTURES = {62: "x86_64", 183: "aarch64"}
# `pip` shows what a build prints only if it fails.
NEEDS = f"""
llb: this source distribution has no {NAME}, and the system has none. Do one of these:
  - install a wheel of llb, which has the library: pip install --only-binary llb llb
  - build the library in a checkout of the llb repository (make lib), and install with
    LLB_LIBRARY=/path/to/target/release/{NAME} pip install llb-*.tar.gz
"""


def page():
    """README.md, whose links work outside of the repository too."""
    here = Path(__file__).resolve().parent
    text = (here / "README.md").read_text(encoding="utf-8")
    project = (here / "pyproject.toml").read_text(encoding="utf-8")
    address = re.search(r'^Repository = "(.*)"$', project, re.M)
    if not address:
        return text

    def absolute(link):
        path = posixpath.normpath(posixpath.join("bindings/python", link[1]))
        return f"]({address[1]}/blob/main/{path}{link[2] or ''})"

    return re.sub(r"\]\((?![a-z]+:|#)([^)#\s]+)(#[^)\s]*)?\)", absolute, text)


class BuildWithLibrary(build_py):
    def run(self):
        super().run()
        if self.editable_mode:
            return
        bundled = Path(self.build_lib) / "llb" / "_lib"
        # Remove the copy of an earlier build.
        shutil.rmtree(bundled, ignore_errors=True)
        if not LIBRARY.is_file():
            if Path("PKG-INFO").is_file() and not ctypes.util.find_library("llb"):
                sys.exit(NEEDS)
            self.announce(f"llb: no {LIBRARY}; it will be searched for on first use", level=3)
            return
        bundled.mkdir(parents=True)
        shutil.copy2(LIBRARY, bundled / NAME)
        # Kernels for other processors (docs/backends.md).
        for file in sorted(LIBRARY.parent.glob("libllb-cpu-*.so")):
            shutil.copy2(file, bundled / file.name)


class PlatformWheel(bdist_wheel):
    def get_tag(self):
        platform = super().get_tag()[2]
        # The library may be for another processor than this one.
        if sys.platform == "linux" and LIBRARY.is_file() and not self.plat_name_supplied:
            with LIBRARY.open("rb") as file:
                architecture = int.from_bytes(file.read(20)[18:], "little")
            if architecture in ARCHITECTURES:
                platform = f"linux_{ARCHITECTURES[architecture]}"
        if IS_CROSS_WINDOWS and not self.plat_name_supplied:
            platform = "win_amd64"
        # The library does not use the CPython ABI, so one wheel serves every Python 3.
        return ("py3", "none", platform)


class PlatformDistribution(Distribution):
    def has_ext_modules(self):
        # Makes setuptools build a platform wheel.
        return LIBRARY.is_file()


setup(
    long_description=page(),
    long_description_content_type="text/markdown",
    cmdclass={"build_py": BuildWithLibrary, "bdist_wheel": PlatformWheel},
    distclass=PlatformDistribution,
)
