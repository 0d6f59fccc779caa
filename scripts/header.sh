#!/bin/sh
# scripts/header.sh FILE: write the C header to FILE (an absolute path), from the code.
#
# The one place that knows how: build.rs, with the feature `header`, writes it to $LLB_HEADER. Without the engine, so
# that nothing of llama.cpp is compiled; in a target folder of its own that forgets llb first, so that build.rs does run.
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
    echo "header: $1 was not written; does build.rs know the feature \`header\` and LLB_HEADER?" >&2
    exit 1
}
