#!/bin/sh
# Checks that neither dev-dependencies nor the program in cli/ enable further features of the
# library's dependencies. If they do, cargo compiles the library twice: once for `cargo build`, once
# for examples and tests, or for the program.
set -eu

cd "$(dirname "$0")/.."
# features PACKAGE EDGES
features() {
    cargo tree --locked --package "$1" --edges "features,$2" --prefix none --format '{p} [{f}]' |
        sed -n 's/ (\*)$//; /\[/p' | sort -u
}
library=$(mktemp)
others=$(mktemp)
trap 'rm -f "$library" "$others"' EXIT
features llb normal,build >"$library"

# compare WHAT PACKAGE EDGES
compare() {
    features "$2" "$3" >"$others"
    different=$(comm -23 "$library" "$others")
    [ -z "$different" ] || {
        echo "$1 further features of these crates:" >&2
        echo "$different" >&2
        echo "enable the same features in [dependencies] of Cargo.toml" >&2
        exit 1
    }
}

compare "dev-dependencies enable" llb normal,build,dev
compare "the program in cli/ enables" llb-cli normal,build
compare "its tests enable" llb-cli normal,build,dev
