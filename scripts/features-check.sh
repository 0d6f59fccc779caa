#!/bin/sh
# Checks that dev-dependencies enable no further features of the library's dependencies. If one
# does, cargo compiles the library twice: once for `cargo build`, once for examples and tests.
set -eu

cd "$(dirname "$0")/.."
features() {
    cargo tree --locked --edges "features,$1" --prefix none --format '{p} [{f}]' |
        sed -n 's/ (\*)$//; /\[/p' | sort -u
}
library=$(mktemp)
all=$(mktemp)
trap 'rm -f "$library" "$all"' EXIT
features normal,build >"$library"
features normal,build,dev >"$all"
different=$(comm -23 "$library" "$all")
[ -z "$different" ] || {
    echo "dev-dependencies enable further features of these crates:" >&2
    echo "$different" >&2
    echo "enable the same features in [dependencies] of Cargo.toml" >&2
    exit 1
}
