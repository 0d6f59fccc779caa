#!/bin/sh
# Prints the path of a cargo subcommand of a given version, and builds it once if it is missing:
#
#   scripts/cargo-tool.sh NAME VERSION
#
# Tools are kept beside the models, in ${XDG_CACHE_HOME:-~/.cache}/llb/tools, because a build takes
# minutes. What cargo prints goes to stderr.
set -eu

name=$1
version=$2
root=${XDG_CACHE_HOME:-$HOME/.cache}/llb/tools/$name-$version
if [ ! -x "$root/bin/$name" ]; then
    echo "    building $name $version once: some minutes" >&2
    # An interrupted build continues where it stopped.
    env -u CARGO_TARGET_DIR -u RUSTFLAGS cargo install --quiet --locked --version "$version" \
        --target-dir "$root/build" --root "$root" "$name" >&2
    rm -rf "$root/build"
fi
echo "$root/bin/$name"
