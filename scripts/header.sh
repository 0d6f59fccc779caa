#!/bin/sh
# scripts/header.sh FILE: generate the C header from the code. FILE is an absolute path.
#
# build.rs, with the feature `header`, writes it to $LLB_HEADER. The engine is off, so llama.cpp is
# not compiled. The build has its own target folder and cleans llb first, so build.rs always runs.
set -eu

cd "$(dirname "$0")/.."
unset MAKEFLAGS MFLAGS
CARGO_TARGET_DIR=$PWD/target/header
LLB_HEADER=$1
export CARGO_TARGET_DIR LLB_HEADER

mkdir -p "$(dirname "$1")"
cargo clean --quiet --package llb
cargo check --quiet --lib --no-default-features --features header
[ -f "$1" ] || {
    echo "header: $1 was not written; check the feature \`header\` and LLB_HEADER in build.rs" >&2
    exit 1
}
