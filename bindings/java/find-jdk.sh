#!/bin/sh
# find-jdk.sh [--runtime] [OLDEST [NEWEST]]: prints the home of the newest JDK from version OLDEST
# (22) to NEWEST (any). With --runtime, a Java without a compiler is one, too. Exits with 1 if none
# is found. Searches JAVA_HOME, /usr/lib/jvm/* and the java on PATH. The first of equal versions wins.

runtime=
[ "${1:-}" != --runtime ] || { runtime=1 && shift; }
oldest=${1:-22}
newest=${2:-999}
best=
best_version=0

# major_version HOME: print the feature release of a JDK, such as 22, or nothing if HOME has no JDK.
major_version() {
    [ -x "$1/bin/java" ] || return 0
    [ -n "$runtime" ] || [ -x "$1/bin/javac" ] || return 0
    if [ -r "$1/release" ]; then
        sed -n 's/^JAVA_VERSION="\([0-9]*\).*/\1/p' "$1/release"
    else
        "$1/bin/java" -version 2>&1 | sed -n '1s/.*version "\([0-9]*\).*/\1/p'
    fi
}

consider() {
    [ -n "$1" ] || return 0
    version=$(major_version "$1")
    if [ "${version:-0}" -ge "$oldest" ] && [ "$version" -le "$newest" ] &&
        [ "$version" -gt "$best_version" ]; then
        best=$1
        best_version=$version
    fi
}

consider "${JAVA_HOME:-}"
for home in /usr/lib/jvm/*; do
    consider "$home"
done
if java=$(command -v java); then
    java=$(readlink -f "$java" 2>/dev/null || printf '%s\n' "$java")
    consider "${java%/bin/java}"
fi

[ -n "$best" ] || exit 1
printf '%s\n' "$best"
