#!/bin/sh
# Runs one step of the build under a heading and reports its progress.
#
#   scripts/step.sh [--engine FOLDER] HEADING COMMAND [ARGUMENT...]
#
# Reads the environment of private tools (target/tools/env.sh) first. With --engine, FOLDER is
# cargo's folder of the profile being built. If it has no compiled llama.cpp yet, compiling takes
# minutes in which cargo prints nothing. The script then announces it and prints the progress every
# 30 s. With LLB_TIMINGS=FILE the script appends a line `seconds status heading` to FILE.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
engine=
if [ "$1" = --engine ]; then
    engine=$2
    shift 2
fi
heading=$1
shift

compiled() { ls "$engine"/build/llama-cpp-sys-2-*/out/lib*/libllama.a >/dev/null 2>&1; }

# Prints how many of llama.cpp's files are compiled, as "12 of 74"; nothing before cmake lists them.
files() {
    list=$(ls -t "$engine"/build/llama-cpp-sys-2-*/out/build/compile_commands.json 2>/dev/null |
        head -n 1)
    [ -z "$list" ] ||
        echo "$(find "${list%/*}" -name '*.o' -o -name '*.obj' | wc -l) of $(grep -c '"file":' "$list")"
}

watch_engine() {
    seconds=0
    while sleep 1; do
        seconds=$((seconds + 1))
        [ $((seconds % 30)) = 0 ] || continue
        compiled && exit 0
        files=$(files)
        time=$((seconds / 60)):$(printf %02d $((seconds % 60)))
        line="    $time  llama.cpp: ${files:-preparing}${files:+ files compiled}"
        # On a terminal, cargo's progress bar is on this line.
        if [ -t 2 ]; then printf '\r\033[K%s\n' "$line" >&2; else echo "$line" >&2; fi
    done
}

echo "==> $heading"
[ ! -f "$root/target/tools/env.sh" ] || . "$root/target/tools/env.sh"

watcher=
if [ -n "$engine" ] && ! compiled; then
    cores=$(nproc 2>/dev/null || echo 2)
    minutes=$(((9 + cores - 1) / cores))
    echo "    compiling llama.cpp once: about $minutes minutes on $cores cores, less with ccache"
    watch_engine &
    watcher=$!
fi

stop_watching() {
    [ -z "$watcher" ] || kill "$watcher" 2>/dev/null || true
    watcher=
}
trap stop_watching EXIT
trap 'stop_watching; exit 130' INT
trap 'stop_watching; exit 143' TERM

started=$(date +%s)
status=0
"$@" || status=$?
stop_watching
seconds=$(($(date +%s) - started))

[ -z "${LLB_TIMINGS:-}" ] || echo "$seconds $status $heading" >>"$LLB_TIMINGS"
if [ "$status" != 0 ]; then
    echo "==> failed after $seconds s (status $status): $heading" >&2
fi
exit "$status"
