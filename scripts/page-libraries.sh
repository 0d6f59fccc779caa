#!/bin/sh
# The libraries of the page of `llb serve`, from npm: downloads the releases below, checks them, and
# copies one file of each with its licence. `--check` only checks the copies, without a network.
set -eu

cd "$(dirname "$0")/.."
vendor=$PWD/cli/src/serve/page/vendor
if [ "${1:-}" = --check ]; then
    cd "$vendor"
    exec sha256sum --check --quiet SHA256SUMS
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

# library NAME VERSION SHA256 FILE
library() {
    npm pack --silent "$1@$2" >/dev/null
    echo "$3  $1-$2.tgz" | sha256sum --check --quiet
    tar xzf "$1-$2.tgz" "package/$4" package/LICENSE
    cp "package/$4" "$vendor/${4##*/}"
    cp package/LICENSE "$vendor/LICENSE-$1"
}

library marked 18.2.1 d66c5213fc203466186060105b01f51896764ba64b3797d2620d02e28e34b8ca \
    lib/marked.umd.js
library dompurify 3.5.0 faa5f2bfe2814384b83d6edb4ed66812fbfdb2a654b4d59edd4b12304058ec20 \
    dist/purify.min.js
cd "$vendor"
rm -f SHA256SUMS
sha256sum -- * >"$folder/SHA256SUMS"
mv "$folder/SHA256SUMS" .
