#!/bin/sh
# macOS on 64-bit ARM, on a machine with Linux: zig's compilers and their libraries.
#
#   scripts/macos.sh setup FOLDER VENV    write the compilers to FOLDER; VENV is a Python environment
#                                         with the package ziglang
#   scripts/macos.sh check LIBRARY        what the library exports, needs and is signed with
#
