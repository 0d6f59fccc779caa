#!/bin/sh
# scripts/device-wheel-check.sh FOLDER PACKAGE MODEL: install llb's wheel in FOLDER and then that of
# PACKAGE (llb_vulkan, llb_cuda13) in a fresh environment, and run them outside of the checkout.
#
# A chat of MODEL must compute on a device if there is one (of Vulkan, lavapipe counts), and else on
# the processor, with a reason. Without the package it computes on the processor. If CUDA_LIBRARIES is
# a folder with libcublas.so.13, the file for CUDA is also tried with a driver that is too old.
set -eu
llb=$(realpath "$1"/llb-*-manylinux*.whl)
device=$(realpath "$1/$2"-*-manylinux*.whl)
model=$(realpath "$3")
here=$(dirname "$(realpath "$0")")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
cat >use.py <<'EOF'
import logging
import sys

import llb

messages = []
handler = logging.Handler()
handler.emit = lambda record: messages.append(record.getMessage())
logging.getLogger("llb").addHandler(handler)
found = llb.backends()
files = found["device_files"]
devices = [device["name"] for device in found["devices"] if device["type"] != "cpu"]
if sys.argv[2] == "installed":
    (file,) = files
    assert "/llb/_lib/" in file["file"], file
    assert bool(devices) == file["usable"], found
    assert devices or file["reason"], file
    print(f"    {file['name'] or file['file']}: {', '.join(devices) or file['reason']}")
elif sys.argv[2] == "old driver":
    (file,) = files
    assert not file["usable"] and "driver version is insufficient" in file["reason"], file
    print(f"    {file['name']}, old driver: {file['reason']}")
else:
    assert not files and not devices, found
# lavapipe of Mesa 22.3 damages its memory with flash attention (docs/backends.md).
options = {"devices": devices[:1], "flash_attn": "off"} if devices else {}
with llb.Chat(sys.argv[1], log="warn", **options) as chat:
    assert chat.create([{"role": "user", "content": "Say hello."}], temperature=0)["text"]
if files and not devices:
    assert any(files[0]["reason"] in message for message in messages), messages
EOF
python3 -m venv venv
pip="venv/bin/python -m pip --disable-pip-version-check"
run() {
    env -u LLB_LIBRARY -u LLB_BACKENDS -u PYTHONPATH LD_LIBRARY_PATH="${2:-}" GGML_VK_VISIBLE_DEVICES=0 \
        venv/bin/python use.py "$model" "$1"
}
$pip install -q --no-index "$llb"
run absent
# What CUDA's package needs besides llb has 400 MB.
$pip install -q --no-index --no-deps "$device"
run installed
if [ "$2" = llb_cuda13 ] && [ -n "${CUDA_LIBRARIES:-}" ]; then
    mkdir driver
    ${CC:-cc} -shared -fPIC -Wall -Wextra -Werror "$here/old-driver.c" -ldl -o driver/libcuda.so.1
    run "old driver" "$folder/driver:$CUDA_LIBRARIES"
fi
$pip uninstall -q -y "$(echo "$2" | tr _ -)"
run absent
