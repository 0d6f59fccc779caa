"""Puts the shared library into the wheel when it is built in the same checkout.

In comes ../../target/release/libllb.so, if it is there; out goes llb/_lib/libllb.so with the notices of what
is linked into it, in a wheel for this platform and any Python 3. Without it the wheel is pure Python and
finds the library when it is first used. An editable install copies nothing: it uses the build where it lies.
"""

import shutil
import sys
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

REPOSITORY = Path(__file__).resolve().parents[2]
NAME = {"darwin": "libllb.dylib", "win32": "llb.dll"}.get(sys.platform, "libllb.so")
LIBRARY = REPOSITORY / "target" / "release" / NAME
NOTICES = ("LICENSE*", "NOTICE*", "THIRD_PARTY*", "THIRD-PARTY*")


class BuildWithLibrary(build_py):
    def run(self):
        super().run()
        if self.editable_mode:
            return
        bundled = Path(self.build_lib) / "llb" / "_lib"
        # What an earlier build left must not outlive the library it came from.
        shutil.rmtree(bundled, ignore_errors=True)
        if not LIBRARY.is_file():
            self.announce(f"llb: no {LIBRARY}; the package will look for the library when it is used", level=3)
            return
        bundled.mkdir(parents=True)
        for source in [LIBRARY, *(path for pattern in NOTICES for path in REPOSITORY.glob(pattern))]:
            if source.is_file():
                shutil.copy2(source, bundled / source.name)


class PlatformWheel(bdist_wheel):
    def get_tag(self):
        # The library knows nothing of CPython, so one wheel serves every version of it.
        return ("py3", "none", super().get_tag()[2])


class PlatformDistribution(Distribution):
    def has_ext_modules(self):
        # What makes setuptools treat the package as one for this platform.
        return LIBRARY.is_file()


setup(cmdclass={"build_py": BuildWithLibrary, "bdist_wheel": PlatformWheel}, distclass=PlatformDistribution)
