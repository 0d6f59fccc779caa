#!/bin/sh
# build-jni.sh FILE: compiles the JNI shim to FILE with the system's C compiler ($CC, or cc). The
# headers of JNI are those of JAVA_HOME.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
out=$1
jni=${JAVA_HOME:?must be the folder of a JDK}/include
[ -r "$jni/jni.h" ] || { echo "no $jni/jni.h: set JAVA_HOME to a JDK" >&2; exit 1; }
case $(uname -s) in
    Darwin) system=darwin ;;
    *) system=linux ;;
esac

mkdir -p "$(dirname "$out")"
# Symbols are bound immediately, so that a missing one fails when the file is loaded.
exec "${CC:-cc}" -shared -fPIC -O2 -std=gnu11 -Wall -Wextra -Werror -fvisibility=hidden \
    -fstack-protector-strong -Wl,-z,relro,-z,now,-z,noexecstack -Wl,--no-undefined -s \
    -I"$here/../../../include" -I"$jni" -I"$jni/$system" \
    "$here/src/main/c/llb_jni.c" -ldl -o "$out"
