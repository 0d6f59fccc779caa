"""Packs a file of devices for the package llb: llb/_lib/libllb-NAME.so, which LLB_DEVICE_FILE names.

The wheel has no modules. The file is installed beside llb's library, where the library looks for it.
"""

import os
import re
import shutil
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build import build

HERE = Path(__file__).resolve().parent
FILE = Path(os.environ["LLB_DEVICE_FILE"])
# The file's version must be the library's, so the packages' versions are equal too.
VERSION = re.search(r'^version = "(.+)"$', (HERE.parent / "pyproject.toml").read_text(), re.M)[1]
LICENSE = "MIT OR Apache-2.0"
PACKAGES = {
    "libllb-vulkan.so": {
        "name": "llb-vulkan",
        "description": "GPUs for llb, by Vulkan.",
        "license_expression": LICENSE,
        "install_requires": [f"llb=={VERSION}"],
    },
    "libllb-cuda.so": {
        "name": "llb-cuda13",
        "description": "NVIDIA GPUs for llb, by CUDA 13.",
        # CUDA's runtime is part of the file.
        "license_expression": f"({LICENSE}) AND LicenseRef-NVIDIA-CUDA",
        "install_requires": [f"llb=={VERSION}", "nvidia-cublas>=13,<14"],
    },
}


class BuildFile(build):
    def run(self):
        target = Path(self.build_lib) / "llb" / "_lib" / FILE.name
        shutil.rmtree(self.build_lib, ignore_errors=True)
        target.parent.mkdir(parents=True)
        shutil.copy2(FILE, target)


class PlatformWheel(bdist_wheel):
    def get_tag(self):
        # The file does not use the CPython ABI, so one wheel serves every Python 3.
        return ("py3", "none", super().get_tag()[2])


class PlatformDistribution(Distribution):
    def has_ext_modules(self):
        # Makes setuptools build a platform wheel, and install the file.
        return True


setup(
    **PACKAGES[FILE.name],
    version=VERSION,
    long_description=(HERE / "README.md").read_text(),
    long_description_content_type="text/markdown",
    license_files=["LICENSE*", "NOTICE"],
    classifiers=["Operating System :: POSIX :: Linux", "Programming Language :: Python :: 3 :: Only"],
    python_requires=">=3.9",
    packages=[],
    py_modules=[],
    cmdclass={"build": BuildFile, "bdist_wheel": PlatformWheel},
    distclass=PlatformDistribution,
)
