#!/bin/sh
# Checks that NOTICE names every crate in a binary: the normal dependencies without procedural
# macros.
set -eu

cd "$(dirname "$0")/.."
target=$(rustc -vV | sed -n 's/^host: //p')
crates=$(cargo tree --locked --edges normal,no-proc-macro --target "$target" --prefix none \
    --format '{p}')
missing=
for crate in $(echo "$crates" | awk '{ print $1 }' | sort -u); do
    grep -q "^\(  \(.*, \)\?\)\?$crate\(,\| \|\$\)" NOTICE || missing="$missing $crate"
done
[ -z "$missing" ] || {
    echo "NOTICE does not name these crates:$missing" >&2
    exit 1
}
