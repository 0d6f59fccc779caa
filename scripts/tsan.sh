#!/bin/sh
# Runs the soak test under ThreadSanitizer: scripts/tsan.sh [SECONDS], default 60.
#
# Needs a nightly compiler with rust-src, because the sanitizer also instruments the standard
# library. Compiles llama.cpp once more, in target/tsan. Only llb's own code is checked:
# llama.cpp is compiled without the sanitizer, and scripts/tsan.supp suppresses the false reports
# about it.
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
exec cargo +nightly test -Zbuild-std --target "$triple" --release --test integration -- \
    soak --nocapture
