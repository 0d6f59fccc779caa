#!/bin/sh
# tests/c/windows.sh: build C programs for Windows against llb.dll, and run them with Wine. `make
# test-windows` calls it with these variables:
#
#   LLB_LIBRARY      path of llb.dll; libllb.dll.a must be in the same folder
#   LLB_INCLUDE      folder of llb.h
#   LLB_TEST_MODELS  folder of the scripted models
#   CC, CXX          compilers for Windows
#   RUN              command that runs a program for Windows
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
here=$root/tests/c
: "${LLB_LIBRARY:?the path of llb.dll}" "${LLB_TEST_MODELS:?the folder of the scripted models}"
: "${LLB_INCLUDE:=$root/include}" "${CC:?}" "${CXX:?}" "${RUN:?}"
strict="-Wall -Wextra -Wpedantic -Werror -O1"

build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
# A folder that is not ASCII, with spaces.
models="$build/größe 東京"
mkdir "$models"
cp "$LLB_LIBRARY" "$build/llb.dll"
cp "${LLB_LIBRARY%/*}/libllb.dll.a" "$build"
cp "$LLB_TEST_MODELS"/text.gguf "$LLB_TEST_MODELS"/tool_call.gguf "$LLB_TEST_MODELS"/no_tools.gguf \
    "$LLB_TEST_MODELS"/long.gguf "$models"

status=0
check() {
    name=$1
    shift
    if "$@" >"$build/output" 2>&1; then
        echo "ok      $name"
    else
        echo "FAILED  $name"
        sed 's/^/    /' "$build/output"
        status=1
    fi
}

exports() {
    sed -n 's/^[a-z].*[ *]\(llb_[a-z_]*\)(.*/\1/p' "$LLB_INCLUDE/llb.h" | sort >"$build/declared"
    objdump -p "$build/llb.dll" | sed -n '/Ordinal\/Name Pointer/,/^$/p' | sed -n 's/.*\[ *[0-9]*\] *//p' | sort >"$build/exported"
    [ "$(wc -l <"$build/declared")" -ge 18 ] && diff "$build/declared" "$build/exported"
}

# Only libraries that every Windows 10 has: no C++ runtime, no compiler's.
dependencies() {
    allowed='api-ms-win-(core|crt)-.*|(advapi32|bcrypt|bcryptprimitives|crypt32|kernel32|ntdll|secur32|userenv|ws2_32)'
    ! objdump -p "$build/llb.dll" | sed -n 's/.*DLL Name: //p' | tr 'A-Z' 'a-z' | grep -vE "^($allowed)\.dll$"
}

compile() { $CC -std=c11 $strict -I"$LLB_INCLUDE" -I"$root/bindings/c" "$1" "$build/libllb.dll.a" -o "$build/$2.exe"; }

text='Grüße aus Köln: naïve 東京, and an emoji 😀 cut in two.'
prints() {
    expected=$1
    shift
    "$@" >"$build/printed" || { cat "$build/printed"; return 1; }
    grep -qF "$expected" "$build/printed" || { cat "$build/printed"; return 1; }
}

example() {
    compile "$root/bindings/c/$1.c" "$1" || return 1
    (cd "$models" && prints "$3" timeout 120 $RUN "$build/$1.exe" "$2" 'What is the weather in Paris?')
}

cases() {
    expected=$2
    (cd "$models" && prints "$expected" timeout 120 $RUN "$build/windows.exe" "$build/llb.dll" "$1" long.gguf)
}

exceptions() {
    $CXX -std=c++17 $strict -I"$LLB_INCLUDE" "$here/exceptions.cpp" "$build/libllb.dll.a" -o "$build/exceptions.exe" &&
        timeout 120 $RUN "$build/exceptions.exe" "$LLB_TEST_MODELS"
}

check 'exports match the header' exports
check 'needed libraries' dependencies
check 'example simple' example simple text.gguf "$text"
check 'example tools' example tools tool_call.gguf 'call: get_weather({"city": "Paris"})'
check 'exceptions out of callbacks' exceptions
check 'windows: compiles' compile "$here/windows.c" windows
check 'an exit during a reply' cases exit 'exits during a reply'
check 'a cancel from another thread' cases cancel '"finish_reason":"cancelled"'
check 'a freed library goes on' cases free '"finish_reason":"stop"'
exit "$status"
