#!/bin/sh
# Checks that NOTICE names every crate in a binary of the library, and that cli/NOTICE names the
# additional crates of the program. These are the normal dependencies without procedural macros, on
# this machine and, for the library, on Windows.
set -eu

cd "$(dirname "$0")/.."
host=$(rustc -vV | sed -n 's/^host: //p')
status=0

# check PACKAGE TARGET NOTICE...
check() {
    package=$1 target=$2
    shift 2
    crates=$(cargo tree --locked --package "$package" --edges normal,no-proc-macro \
        --target "$target" --prefix none --format '{p}')
    missing=
    for crate in $(echo "$crates" | awk '{ print $1 }' | sort -u); do
        [ "$crate" != "$package" ] || continue
        cat "$@" | grep -q "^\(  \(.*, \)\?\)\?$crate\(,\| \|\$\)" || missing="$missing $crate"
    done
    [ -z "$missing" ] || {
        echo "$* does not name these crates on $target:$missing" >&2
        status=1
    }
}

check llb "$host" NOTICE
check llb x86_64-pc-windows-gnullvm NOTICE
check llb-cli "$host" NOTICE cli/NOTICE
exit $status
