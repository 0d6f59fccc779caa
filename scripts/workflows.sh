#!/bin/sh
# scripts/workflows.sh FOLDER VERSION: checks .github/workflows with actionlint, which Go builds once
# in FOLDER. Every action must be pinned by the hash of its commit, and no workflow may have more
# permissions than its jobs say.
set -eu
folder=$1 version=$2
[ -x "$folder/actionlint-$version" ] || {
    GOBIN=$folder go install "github.com/rhysd/actionlint/cmd/actionlint@$version"
    mv "$folder/actionlint" "$folder/actionlint-$version"
}
"$folder/actionlint-$version"
status=0
if grep -rnE '^ *(- )?uses: ' .github | grep -vE 'uses: (\./|[^@]+@[0-9a-f]{40} # v[0-9.]+$)'; then
    echo "the lines above pin no commit: uses: NAME@HASH # vVERSION" >&2
    status=1
fi
for file in .github/workflows/*.yml; do
    grep -qx 'permissions:' "$file" || { echo "$file: no permissions for all jobs" >&2; status=1; }
done
# A version has one hash.
grep -rhoE '[^ ]+@[0-9a-f]{40} # v[0-9.]+' .github | sort -u | awk '
    { split($1, part, "@"); key = part[1] " " $3
      if (key in hash && hash[key] != part[2]) { print key ": two hashes"; bad = 1 }
      hash[key] = part[2] }
    END { exit bad }' || status=1
exit $status
