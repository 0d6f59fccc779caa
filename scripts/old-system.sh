#!/bin/sh
# scripts/old-system.sh FOLDER MODEL: run the wheel in FOLDER on Debian 11, which has glibc 2.31: a
# chat on MODEL, and one in a helper process. The system is made of Debian's packages, in a temporary
# folder. Needs root, apt of a Debian, and a network. A wheel for ARM runs in an emulator, which
# takes the libraries from the folder, and cannot start helper processes (docs/building.md).
set -eu
suite=bullseye
python=python3.9
wheel=$(realpath "$1"/llb-*-manylinux*.whl)
model=$(realpath "$2")
emulator=$(realpath "$(dirname "$0")/aarch64.sh")
case $wheel in
*_aarch64.whl) architecture=arm64 ;;
*) architecture=amd64 ;;
esac
mirror=$(apt-get indextargets --format '$(REPO_URI)' | head -n 1)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
root=$folder/root
mkdir -p "$folder/lists/partial" "$folder/cache/archives/partial" \
    "$root/dev" "$root/proc" "$root/llb"
keys=/usr/share/keyrings/debian-archive-keyring.gpg
echo "deb [signed-by=$keys] $mirror $suite main" >"$folder/sources.list"
: >"$folder/status"
apt() {
    apt-get -qq -o APT::Architecture=$architecture -o APT::Architectures=$architecture \
        -o Dir::Etc::SourceList="$folder/sources.list" \
        -o Dir::Etc::SourceParts=/nonexistent -o Dir::State::Lists="$folder/lists" -o Dir::State::status="$folder/status" \
        -o Dir::Cache="$folder/cache" -o APT::Sandbox::User=root -o Debug::NoLocking=1 "$@"
}
apt update
apt install -y --no-install-recommends --download-only "$python" >/dev/null
for package in "$folder"/cache/archives/*.deb; do
    dpkg-deb -x "$package" "$root"
done
mknod -m 666 "$root/dev/null" c 1 3
"${PYTHON:-python3}" -m zipfile -e "$wheel" "$root/llb"
cp "$model" "$root/llb/model.gguf"
cat >"$root/llb/use.py" <<'EOF'
import platform
import sys

import llb
from llb import _library

assert "_lib" in _library.load().path, _library.load().path
messages = [{"role": "user", "content": "Say hello."}]
texts = []
for isolation in sys.argv[2:]:
    with llb.Chat(sys.argv[1], isolation=isolation) as chat:
        texts.append(chat.create(messages, temperature=0)["text"])
assert texts[0] and set(texts) == {texts[0]}, texts
print(platform.machine(), *platform.libc_ver(), f"Python {sys.version.split()[0]}, {llb.version()}: {texts[0]}")
EOF
if [ "$architecture" = arm64 ]; then
    QEMU_LD_PREFIX=$root PYTHONPATH=$root/llb "$emulator" run \
        "$root/usr/bin/$python" "$root/llb/use.py" "$root/llb/model.gguf" none
    exit
fi
# The mount ends with this shell.
unshare --mount sh -c 'mount --bind /proc "$0/proc" && PYTHONPATH=/llb exec chroot "$0" "$@"' \
    "$root" "/usr/bin/$python" /llb/use.py /llb/model.gguf none process
