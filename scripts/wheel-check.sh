#!/bin/sh
# scripts/wheel-check.sh FOLDER MODEL LIBRARY: install the wheel in FOLDER in a fresh environment, and
# run it outside of the checkout: the model information, a chat and a stream on MODEL, and every block
# of the README. Does so with each interpreter in PYTHONS, or with those of python3.9 to python3.14
# that are there, on the path or in pyenv. Equal versions count once. The sdist must build with
# LIBRARY, and without one must say what it needs.
set -eu
blocks=$(realpath "$(dirname "$0")/../bindings/python/tests/readme_blocks.py")
sdist=$(realpath "$1"/llb-*.tar.gz)
library=$(realpath "$3")
wheel=$(realpath "$1"/llb-*-manylinux*.whl)
model=$(realpath "$2")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
cat >use.py <<'EOF'
import sys

import llb
from llb import _library

assert "_lib" in _library.load().path, _library.load().path
assert llb.model_info(sys.argv[1])["supports_tools"]
messages = [{"role": "user", "content": "Say hello."}]
with llb.Chat(sys.argv[1]) as chat:
    text = chat.create(messages, temperature=0, seed=1)["text"]
    pieces = chat.create(messages, temperature=0, seed=1, stream=True).text
    assert text and "".join(pieces) == text
print(f"Python {sys.version.split()[0]}, {llb.version()}: {text}")
EOF
pyenv=${PYENV_ROOT:-${HOME:-/}/.pyenv}/versions
checked=
for python in ${PYTHONS:-python3 python3.9 python3.10 python3.11 python3.12 python3.13 python3.14 \
    "$pyenv"/3.*/bin/python3}; do
    version=$("$python" -c "import sys, venv; assert sys.version_info >= (3, 9); \
        print(sys.version.split()[0])" 2>/dev/null) || continue
    case " $checked " in *" $version "*) continue ;; esac
    rm -rf venv
    "$python" -m venv venv
    venv/bin/python -m pip install -q --disable-pip-version-check --no-index "$wheel"
    env -u LLB_LIBRARY -u PYTHONPATH -u LD_LIBRARY_PATH PATH=/usr/bin:/bin \
        venv/bin/python use.py "$model"
    env -u LLB_LIBRARY -u PYTHONPATH -u LD_LIBRARY_PATH venv/bin/python "$blocks" "$model"
    checked="$checked $version"
done
if pip_output=$(env -u LLB_LIBRARY venv/bin/python -m pip install --force-reinstall "$sdist" 2>&1); then
    echo "the sdist installs without a library" >&2
    exit 1
fi
case $pip_output in
*"this source distribution has no libllb.so"*) ;;
*) echo "the sdist does not say what it needs: $pip_output" >&2; exit 1 ;;
esac
LLB_LIBRARY="$library" venv/bin/python -m pip install -q --disable-pip-version-check \
    --force-reinstall "$sdist"
env -u LLB_LIBRARY -u PYTHONPATH venv/bin/python use.py "$model"
[ -n "$checked" ] || { echo "no Python 3.9 or later with venv" >&2; exit 1; }
