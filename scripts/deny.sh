#!/bin/sh
# Checks the licences, versions and sources of all crates with cargo-deny (deny.toml). Builds
# cargo-deny once if it is missing. `scripts/deny.sh advisories` instead compares with the database
# of known vulnerabilities, which cargo-deny downloads.
set -eu

cd "$(dirname "$0")/.."
deny=$(scripts/cargo-tool.sh cargo-deny 0.20.2)
[ $# != 0 ] || set -- licenses bans sources
"$deny" --workspace --log-level warn check --hide-inclusion-graph "$@"
