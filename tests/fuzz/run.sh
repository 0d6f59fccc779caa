#!/bin/sh
# Fuzzes llb: tests/fuzz/run.sh [TARGET...], default: all targets.
#
# FUZZ_SECONDS is the time for each target (600), FUZZ_ARGS goes to libFuzzer. With FUZZ_BUILD set, the
# targets are only built. Corpus, findings and the build are in target/fuzz. A finding does not stop
# the other targets; the exit status is 1 if there was one. Needs a nightly compiler. Builds
# cargo-fuzz if it is missing.
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
fuzz=$root/target/fuzz
version=0.13.2
seconds=${FUZZ_SECONDS:-600}
# A separate target folder: all crates are compiled with coverage counters.
export CARGO_TARGET_DIR="$fuzz/build"

cargo +nightly --version >/dev/null 2>&1 || { echo "run: rustup toolchain install nightly" >&2; exit 1; }
PATH=$fuzz/tools/bin:$PATH
command -v cargo-fuzz >/dev/null || cargo install --quiet --locked --version "$version" --root "$fuzz/tools" cargo-fuzz

python3 "$root/tests/fuzz/media_seeds.py" "$fuzz/corpus"
if conformance=$(python3 "$root/scripts/conformance/folder.py"); then
    python3 "$root/tests/fuzz/seeds.py" "$conformance" "$fuzz/corpus"
else
    "$root/scripts/skip.sh" "seeds of the fuzz targets" "no conformance set; run: make conformance"
fi

[ $# != 0 ] || set -- template_source template_grammar template_messages template_request template_info \
    output parse_request schemas arguments compose chat_request model_file server_stream hub_answers \
    created_model state_file lark_grammar picture_file sound_file
found=
for target in "$@"; do
    case $target in
        # These run llama.cpp, which is compiled once more for them.
        created_model | state_file | lark_grammar) features=--features=engine ;;
        picture_file | sound_file) features=--features=media ;;
        *) features= ;;
    esac
    if [ -n "${FUZZ_BUILD:-}" ]; then
        # shellcheck disable=SC2086 # features may be empty
        cargo +nightly fuzz build -s none $features --fuzz-dir "$root/tests/fuzz" "$target"
        continue
    fi
    case $target in
        # These read bytes as a grammar, messages or schemas, where short inputs suffice.
        template_grammar | template_messages | output | parse_request | schemas | arguments | compose | \
            chat_request | model_file | server_stream | hub_answers | created_model | state_file | \
            lark_grammar) length=4096 dict= ;;
        *) length=32768 dict=-dict=$root/tests/fuzz/jinja.dict ;;
    esac
    mkdir -p "$fuzz/corpus/$target" "$fuzz/artifacts/$target"
    if [ -n "$features" ] && [ -z "$(ls "$fuzz/corpus/$target")" ]; then
        # A run is slow here. From an empty corpus, libFuzzer makes only a few bytes for too long.
        for seed in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do
            head -c $((seed * 128)) /dev/urandom >"$fuzz/corpus/$target/random-$seed"
        done
    fi
    echo "    $target: $seconds s"
    touch "$fuzz/$target.start"
    # No sanitizer: most of the code is safe Rust, and runs faster without one.
    # shellcheck disable=SC2086 # features and dict may be empty, FUZZ_ARGS several arguments
    cargo +nightly fuzz run -s none $features --fuzz-dir "$root/tests/fuzz" "$target" "$fuzz/corpus/$target" -- \
        -max_total_time="$seconds" -max_len="$length" -timeout=60 -rss_limit_mb=4096 -print_final_stats=1 -verbosity=0 \
        -artifact_prefix="$fuzz/artifacts/$target/" $dict ${FUZZ_ARGS:-} >"$fuzz/$target.log" 2>&1 || found="$found $target"
    # A finding is a file of its kind.
    kind() { find "$fuzz/artifacts/$target" -name "$1-*" -newer "$fuzz/$target.start" | wc -l; }
    echo "harden: crashes=$(kind crash) hangs=$(kind timeout) leaks=$(($(kind leak) + $(kind oom)))"
    grep -a 'stat::number_of_executed_units\|panicked at\|SUMMARY' "$fuzz/$target.log" | tail -n 3 | sed 's/^/    /'
done
[ -z "$found" ] || { echo "findings in:$found (target/fuzz/TARGET.log, target/fuzz/artifacts)" >&2; exit 1; }
