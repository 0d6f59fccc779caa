#!/bin/sh
# Runs the tests of the ABI under AddressSanitizer, LeakSanitizer and UndefinedBehaviorSanitizer, with
# llama.cpp, the C++ of this library and its Rust code compiled for them:
#
#   scripts/sanitize.sh [--build] [TEST...]
#
# TEST are filters of tests/integration; default: those below. --build compiles only. The reports are
# target/sanitize/reports/*, and the exit status is 1 if there are any or if a test fails.
#
# llama.cpp is compiled once more, in target/sanitize, by the system's C++ compiler. The runtime of the
# sanitizers is that of the nightly Rust compiler, so that there is one for all languages. Rust's
# standard library is not instrumented. Rust code has no UndefinedBehaviorSanitizer.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
[ ! -f target/tools/env.sh ] || . target/tools/env.sh
triple=$(rustc -vV | sed -n 's/^host: //p')
cargo +nightly --version >/dev/null 2>&1 || { echo "run: rustup toolchain install nightly" >&2; exit 1; }
target=$root/target/sanitize
flags="-fsanitize=address,undefined -fno-sanitize=vptr -fno-omit-frame-pointer -g1"
export CARGO_TARGET_DIR="$target" RUSTFLAGS=-Zsanitizer=address CFLAGS="$flags" CXXFLAGS="$flags"
# Less optimisation, because the sanitizers' checks make files slow to compile with -O3.
export CMAKE_C_FLAGS_RELEASE="-O1 -DNDEBUG" CMAKE_CXX_FLAGS_RELEASE="-O1 -DNDEBUG" LLAMA_LIB_PROFILE=Release
export CARGO_PROFILE_RELEASE_OPT_LEVEL=1 CARGO_PROFILE_RELEASE_STRIP=none \
    CARGO_PROFILE_RELEASE_DEBUG=line-tables-only CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16
if command -v ccache >/dev/null; then
    export CMAKE_C_COMPILER_LAUNCHER=ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache
fi
cargo_test() { cargo +nightly test --target "$triple" --release --test integration "$@"; }

if [ "${1:-}" = --build ]; then
    cargo_test --no-run
    exit
fi
# After a failed assertion of llama.cpp, a call's memory is leaked on purpose (docs/engine.md), so
# these tests run without the leak check.
failing="hostile:: lora:: odd_files:: overflow::"
# Excluded: helper processes, which the dynamic loader starts without the runtime; signals that end
# a process or belong to a test's own handler; memory limits, which the shadow memory exceeds;
# kernels, which are compiled without the runtime; real models.
passing="classic:: compose:: create:: documented_codes:: infer:: lifetime:: logprobs:: markup:: memory::
    model_info:: prefix:: prompts:: reasoning:: recommended:: remote_server:: speculative:: state:: template::
    tokens:: tools::"
[ $# = 0 ] || failing= passing=$*

reports=$target/reports
rm -rf "$reports"
mkdir -p "$reports"
asan="log_path=$reports/report:detect_stack_use_after_return=0:allow_user_segv_handler=1:allocator_may_return_null=1:exitcode=86"
export UBSAN_OPTIONS="log_path=$reports/report:print_stacktrace=1:suppressions=$root/scripts/ubsan.supp"
unset LLB_MODELS
status=0
# shellcheck disable=SC2086 # several filters
ASAN_OPTIONS="$asan:detect_leaks=1" cargo_test -- $passing || status=$?
# shellcheck disable=SC2086
[ -z "$failing" ] || ASAN_OPTIONS="$asan:detect_leaks=0" cargo_test -- $failing || status=$?

# Tests that run themselves again as a child process report there, too.
found() { cat "$reports"/report* 2>/dev/null | grep -ac "$1" || true; }
errors=$(found 'ERROR: AddressSanitizer')
undefined=$(found 'runtime error:')
leaks=$(found 'ERROR: LeakSanitizer')
echo "harden: crashes=$errors leaks=$leaks wrong=$undefined"
[ "$status" = 0 ] && [ "$errors$undefined$leaks" = 000 ] || {
    [ -z "$(ls -A "$reports")" ] || echo "reports: $reports" >&2
    exit 1
}
