#!/bin/sh
# The soak test under ThreadSanitizer: scripts/tsan.sh [SECONDS], 60 without.
#
# Needs a nightly compiler with rust-src, since the standard library is compiled with the sanitizer too; and llama.cpp once more, in
# target/tsan. The library's own code is looked at. llama.cpp's is not compiled for it; scripts/tsan.supp has what is thus reported
# and is none.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
[ ! -f target/tools/env.sh ] || . target/tools/env.sh
triple=$(rustc -vV | sed -n 's/^host: //p')
export RUSTFLAGS=-Zsanitizer=thread
export CARGO_TARGET_DIR="$root/target/tsan"
export LLB_SOAK_SECONDS="${1:-60}"
export LLB_TEST_MODELS="$root/target/scripted-models"
export TSAN_OPTIONS="suppressions=$root/scripts/tsan.supp report_thread_leaks=0"
[ -d "$LLB_TEST_MODELS" ] || { echo "run: make scripted-models" >&2; exit 1; }
if command -v ccache >/dev/null; then
    export CMAKE_C_COMPILER_LAUNCHER=ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache
fi
exec cargo +nightly test -Zbuild-std --target "$triple" --release --test integration -- soak --nocapture
