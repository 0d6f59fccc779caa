#!/bin/sh
# scripts/device-wheel-check.sh FOLDER PACKAGE MODEL: install llb's wheel in FOLDER and then that of
# PACKAGE (llb_vulkan, llb_cuda13) in a fresh environment, and run them outside of the checkout.
#
# A chat of MODEL must compute on a device if there is one (of Vulkan, lavapipe counts), and else on
# the processor, with a reason. Without the package it computes on the processor.
set -eu
llb=$(realpath "$1"/llb-*-manylinux*.whl)
device=$(realpath "$1/$2"-*-manylinux*.whl)
model=$(realpath "$3")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
cat >use.py <<'EOF2'
import sys

import llb

found = llb.backends()
files = found["device_files"]
devices = [device["name"] for device in found["devices"] if device["type"] != "cpu"]
if sys.argv[2] == "installed":
    (file,) = files
    assert "/llb/_lib/" in file["file"], file
    assert bool(devices) == file["usable"], found
    assert devices or file["reason"], file
    print(f"    {file['name'] or file['file']}: {', '.join(devices) or file['reason']}")
else:
    assert not files and not devices, found
# lavapipe of Mesa 22.3 damages its memory with flash attention (docs/backends.md).
options = {"devices": devices[:1], "flash_attn": "off"} if devices else {}
with llb.Chat(sys.argv[1], **options) as chat:
    assert chat.create([{"role": "user", "content": "Say hello."}], temperature=0)["text"]
EOF2
python3 -m venv venv
pip="venv/bin/python -m pip --disable-pip-version-check"
run() { env -u LLB_LIBRARY -u LLB_BACKENDS -u PYTHONPATH -u LD_LIBRARY_PATH GGML_VK_VISIBLE_DEVICES=0 venv/bin/python use.py "$model" "$1"; }
$pip install -q --no-index "$llb"
run absent
# What CUDA's package needs besides llb has 400 MB.
$pip install -q --no-index --no-deps "$device"
run installed
$pip uninstall -q -y "$(echo "$2" | tr _ -)"
run absent
