#!/bin/sh
# scripts/containers.sh WHEELS MODEL IMAGE...: in a container of each image of Python, without a
# network, install llb by its name from the folder WHEELS, and run the blocks of its README on MODEL.
# Needs Docker.
set -eu
python=$(realpath "$(dirname "$0")/../bindings/python")
wheels=$(realpath "$1")
model=$(realpath "$2")
shift 2
for image; do
    echo "$image:"
    docker pull --quiet "$image" >/dev/null
    docker run --rm --network none -v "$wheels:/wheels:ro" -v "$model:/model.gguf:ro" \
        -v "$python:/checkout/bindings/python:ro" "$image" sh -c '
        python -m pip install -q --root-user-action ignore --disable-pip-version-check --no-index \
            --only-binary :all: --find-links /wheels llb
        python /checkout/bindings/python/tests/readme_blocks.py /model.gguf'
done
