"""A build backend that lets `pip download` save a source package without running its code.

pip asks the package's build backend for the metadata before it saves the file. This module answers in
its place, under its usual names, from the PKG-INFO that every source package contains.
"""

import os
import re


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    with open("PKG-INFO", encoding="utf-8") as file:
        text = file.read()
    name, version = (re.search(f"(?m)^{key}: (.*)$", text)[1].strip() for key in ("Name", "Version"))
    folder = f"{name.replace('-', '_')}-{version}.dist-info"
    os.mkdir(os.path.join(metadata_directory, folder))
    with open(os.path.join(metadata_directory, folder, "METADATA"), "w", encoding="utf-8") as file:
        file.write(text)
    return folder
