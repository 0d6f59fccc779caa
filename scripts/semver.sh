#!/bin/sh
# Compares the API for Rust with that of a commit, by cargo-semver-checks:
#
#   scripts/semver.sh COMMIT
#
# rustdoc describes both as JSON, from the dependencies in cargo's target folder, so llama.cpp is not
# compiled again. cargo-semver-checks by itself would compile it for each of them.
set -eu

cd "$(dirname "$0")/.."
tool=$(scripts/cargo-tool.sh cargo-semver-checks 0.51.0)
target=$(realpath "${CARGO_TARGET_DIR:-target}")
folder=$(mktemp -d)
remove() {
    git worktree remove --force "$folder/baseline" 2>/dev/null || true
    rm -rf "$folder"
}
trap remove EXIT

# The JSON is unstable, and RUSTC_BOOTSTRAP permits it. Only rustdoc gets the variable: with it, build
# scripts of dependencies would run again.
printf '#!/bin/sh\nRUSTC_BOOTSTRAP=1 exec rustdoc "$@"\n' >"$folder/rustdoc"
chmod +x "$folder/rustdoc"
# describe FOLDER FILE
describe() {
    (cd "$1" && CARGO_TARGET_DIR=$target RUSTDOC=$folder/rustdoc cargo rustdoc --quiet --release \
        --lib -p llb -- -Zunstable-options --output-format json --cap-lints allow)
    mv "$target/doc/llb.json" "$2"
}

git worktree add --quiet --detach "$folder/baseline" "$1"
describe "$folder/baseline" "$folder/baseline.json"
describe . "$folder/current.json"
"$tool" semver-checks --baseline-rustdoc "$folder/baseline.json" \
    --current-rustdoc "$folder/current.json"
