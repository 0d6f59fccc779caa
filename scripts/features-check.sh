#!/bin/sh
# Checks that neither dev-dependencies nor the program in cli/ enable additional features of the
# library's dependencies. If they do, cargo compiles the library twice: once for `cargo build`, once
# for examples and tests, or for the program.
set -eu

cd "$(dirname "$0")/.."
# features PACKAGE EDGES
features() {
    cargo tree --locked --package "$1" --edges "features,$2" --prefix none --format '{p} [{f}]' >"$tree"
    sed -n 's/ (\*)$//; /\[/p' "$tree" | sort -u
}
tree=$(mktemp)
library=$(mktemp)
others=$(mktemp)
trap 'rm -f "$tree" "$library" "$others"' EXIT
# compare WHAT EDGES PACKAGE OTHER_EDGES
compare() {
    features llb "$2" >"$library"
    features "$3" "$4" >"$others"
    different=$(comm -23 "$library" "$others")
    [ -z "$different" ] || {
        echo "$1 further features of these crates:" >&2
        echo "$different" >&2
        echo "enable the same features in [dependencies] of Cargo.toml" >&2
        exit 1
    }
}

compare "dev-dependencies enable" normal,build llb normal,build,dev
compare "the program in cli/ enables" normal,build llb-cli normal,build
compare "its tests enable" normal,build llb-cli normal,build,dev
# A crate that a build script also uses may have the library's features only there.
compare "the program in cli/ enables" normal llb-cli normal
compare "its tests enable" normal llb-cli normal,dev
