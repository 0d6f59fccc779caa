#!/bin/sh
# Installs the peers of the template benchmark into target/bench-peers, with pinned versions. Quick
# if they are installed.
#
# A peer without python3 or npm is omitted, and the benchmark prints a line. For development only;
# nothing of it is shipped.
set -eu

jinja2=3.1.6
transformers=5.23.0
huggingface_jinja=0.5.11

root=$(cd "$(dirname "$0")/../.." && pwd)
peers=$root/target/bench-peers
mkdir -p "$peers"

# done_for NAME VERSIONS: succeeds if these versions were installed completely.
done_for() { [ "$(cat "$peers/$1.versions" 2>/dev/null)" = "$2" ]; }

versions="jinja2 $jinja2, transformers $transformers"
if done_for python "$versions"; then
    :
elif command -v python3 >/dev/null; then
    echo "    $versions"
    python3 -m venv --clear "$peers/venv"
    "$peers/venv/bin/python" -m pip install -q --disable-pip-version-check "jinja2==$jinja2" "transformers==$transformers"
    echo "$versions" >"$peers/python.versions"
else
    "$root/scripts/skip.sh" "the peers jinja2 and transformers" "no python3"
fi

versions="@huggingface/jinja $huggingface_jinja"
if done_for node "$versions"; then
    :
elif command -v npm >/dev/null; then
    echo "    $versions"
    npm install --silent --no-audit --no-fund --prefix "$peers" "@huggingface/jinja@$huggingface_jinja"
    echo "$versions" >"$peers/node.versions"
else
    "$root/scripts/skip.sh" "the peer @huggingface/jinja" "no npm"
fi
