#!/bin/sh
# tests/c/run.sh: build the C examples and tests against the library, and run them. `make test-c`
# calls it with these variables:
#
#   LLB_LIBRARY      path of libllb.so; libllb.a must be in the same folder
#   LLB_INCLUDE      folder of llb.h
#   LLB_TEST_MODELS  folder of the scripted models and expected.json
#   LLB_MODELS       folder of real models; without it, cases that need one are skipped
#   LLB_REQUIRE_ALL  if set, a skip is a failure
#   CC, CXX          the compilers; those of another processor if its programs run here
#
# Everything is built in a temporary folder. Each group of cases prints one line.
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
here=$root/tests/c
examples=$root/bindings/c
: "${LLB_LIBRARY:?the path of libllb.so}" "${LLB_TEST_MODELS:?the folder of the scripted models}"
: "${LLB_INCLUDE:=$root/include}"
CC=${CC:-cc}
CXX=${CXX:-c++}
strict="-Wall -Wextra -Wpedantic -Werror -O1 -g"
machine=$($CC -dumpmachine)
# An emulator runs the programs of another processor, several times slower.
emulated= slower=1
[ "${machine%%-*}" = "$(uname -m)" ] || emulated=1 slower=5
# The C library that the library is for, if it is not glibc.
musl=
! readelf -d "$LLB_LIBRARY" 2>/dev/null | grep -q 'NEEDED.*musl' || musl=1

build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
mkdir "$build/lib" "$build/bin"
# Test copies, so that a build during the tests does not affect them.
cp "$LLB_LIBRARY" "$build/lib/libllb.so.1"
cp "${LLB_LIBRARY%.so}.a" "$build/lib/libllb.a"
ln -s libllb.so.1 "$build/lib/libllb.so"
export LLB_TEST_MODELS

status=0
say() { printf '%-6s  %s\n' "$1" "$2"; }
fail() {
    say FAILED "$1"
    [ ! -s "$build/output" ] || sed 's/^/    /' "$build/output"
    status=1
}
skip() { "$root/scripts/skip.sh" "$1" "$2" || status=1; }
have() { command -v "$1" >/dev/null 2>&1; }

# within SECONDS COMMAND...: run a command; a hang is a failure.
within() {
    seconds=$(($1 * slower))
    shift
    if have timeout; then timeout -k 5 "$seconds" "$@"; else "$@"; fi
}

# check NAME COMMAND...: run a command as one group.
check() {
    name=$1
    shift
    if "$@" >"$build/output" 2>&1; then say ok "$name"; else fail "$name"; fi
}

compile() {
    output=$1
    shift
    $CC -std=c11 $strict -I"$LLB_INCLUDE" -I"$examples" "$@" -pthread -L"$build/lib" -lllb -lm \
        -Wl,-rpath,"$build/lib" -o "$build/bin/$output"
}

# --- header, exported symbols, dependencies ------------------------------------------------------

header_as_c() {
    compile header_c "$here/header.c" && "$build/bin/header_c"
}

header_as_cxx() {
    $CXX -std=c++17 $strict -I"$LLB_INCLUDE" "$here/header.cpp" -L"$build/lib" -lllb -Wl,-rpath,"$build/lib" \
        -o "$build/bin/header_cxx" && "$build/bin/header_cxx"
}

exceptions() {
    $CXX -std=c++17 $strict -I"$LLB_INCLUDE" "$here/exceptions.cpp" -L"$build/lib" -lllb -Wl,-rpath,"$build/lib" \
        -o "$build/bin/exceptions" && within 120 "$build/bin/exceptions" "$LLB_TEST_MODELS"
}

exports() {
    sed -n 's/^[a-z].*[ *]\(llb_[a-z_]*\)(.*/\1/p' "$LLB_INCLUDE/llb.h" | sort >"$build/declared"
    nm -D --defined-only "$build/lib/libllb.so" | sed 's/^.* //; s/@.*//' | sort >"$build/exported"
    [ "$(wc -l <"$build/declared")" -ge 18 ] && diff "$build/declared" "$build/exported"
}

# Only libc, libm, libgcc_s and the dynamic loader are allowed: no C++ runtime, no OpenMP. With musl,
# one library is all of these but libgcc_s, which is linked statically.
dependencies() {
    readelf -d "$build/lib/libllb.so" >"$build/dynamic"
    grep -q 'SONAME.*\[libllb\.so\.1\]' "$build/dynamic" || { grep SONAME "$build/dynamic"; return 1; }
    # dlclose must not unload code that threads run.
    grep -q 'FLAGS_1.*NODELETE' "$build/dynamic" || { grep FLAGS_1 "$build/dynamic"; return 1; }
    allowed='lib(c|m|gcc_s)\.so\.[0-9]+|ld-linux.*'
    [ -z "$musl" ] || allowed='libc\.musl-x86_64\.so\.1'
    ! sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' "$build/dynamic" | grep -vE "^($allowed)$"
}

# --- examples ------------------------------------------------------------------------------------

# The output of the scripted model text.gguf.
text='Grüße aus Köln: naïve 東京, and an emoji 😀 cut in two.'

run() { program=$1 model=$2; shift 2; within 120 "$build/bin/$program" "$LLB_TEST_MODELS/$model" "$@"; }

prints() {
    expected=$1
    shift
    "$@" >"$build/printed" || return 1
    grep -qF "$expected" "$build/printed" || { cat "$build/printed"; return 1; }
}

# fails_with TEXT COMMAND...: the command must exit with 1 and print TEXT.
fails_with() {
    expected=$1
    shift
    code=0
    "$@" >"$build/printed" 2>&1 || code=$?
    [ "$code" = 1 ] && grep -qF "$expected" "$build/printed" || { echo "status $code"; cat "$build/printed"; return 1; }
}

simple() {
    prints "$text" run simple text.gguf 'A "question" with \ and ü?' && prints "$text" run simple no_tools.gguf 'Hello' &&
        fails_with 'no such file' run simple nothing.gguf 'Hello' &&
        fails_with 'not valid UTF-8' run simple text.gguf "$(printf '\377')" &&
        "$build/bin/simple" --help 2>"$build/printed" && grep -q usage "$build/printed"
}

stream() {
    prints "$text" run stream text.gguf 'Hello' 2>"$build/usage" &&
        grep -q '\[stop: 24 prompt tokens, 12 completion tokens\]' "$build/usage" &&
        fails_with 'cut short' run stream truncated.gguf 'Hello' && "$build/bin/stream" --help 2>"$build/printed"
}

tools() {
    prints 'call: get_weather({"city": "Paris"})' run tools tool_call.gguf 'What is the weather in Paris?' &&
        prints "answer: $text" run tools text.gguf 'What is the weather in Paris?' &&
        fails_with 'does not show tools' run tools no_tools.gguf 'Hello' &&
        fails_with 'no such file' run tools nothing.gguf 'Hello' && "$build/bin/tools" --help 2>"$build/printed"
}

# Ctrl-C during a streamed reply cancels the reply, and the program exits with 0. The signal is sent
# after the first byte of output.
interrupt() {
    mkfifo "$build/pieces"
    "$build/bin/stream" "$real_model" 'Tell me a story of a thousand words.' >"$build/pieces" 2>"$build/usage" &
    streaming=$!
    { dd bs=1 count=1 2>/dev/null >"$build/first" && kill -INT "$streaming" && cat >/dev/null; } <"$build/pieces"
    wait "$streaming" && grep '\[cancelled: ' "$build/usage" || { cat "$build/usage"; return 1; }
}

# A helper process. The dynamic loader starts it from the shared library. A program that contains
# the static library starts itself. The copies have other names and are not executable. Each program
# is also run by the loader itself, and a shared library of another name contains the static one.
isolated() {
    compile isolated "$here/isolated.c" && prints "$text" run isolated text.gguf || return 1
    $CC -std=c11 $strict -I"$LLB_INCLUDE" "$here/isolated.c" "$build/lib/libllb.a" -pthread -lm -lgcc_s \
        -o "$build/bin/isolated_static" && prints "$text" run isolated_static text.gguf || return 1
    mkdir -p "$build/moved" && cp "$build/lib/libllb.so.1" "$build/moved/" && chmod 600 "$build/moved/libllb.so.1" || return 1
    (cd "$build/moved" && LD_LIBRARY_PATH=. && export LD_LIBRARY_PATH && patched=$build/bin/isolated_moved &&
        $CC -std=c11 $strict -I"$LLB_INCLUDE" "$here/isolated.c" ./libllb.so.1 -o "$patched" &&
        prints "$text" run isolated_moved text.gguf) || return 1
    loader=$(readelf -l "$build/bin/isolated" | sed -n 's/.*interpreter: \(.*\)\]/\1/p')
    for program in isolated isolated_static; do
        prints "$text" within 120 "$loader" "$build/bin/$program" "$LLB_TEST_MODELS/text.gguf" || return 1
    done
    $CC -shared -o "$build/moved/libother.so" -Wl,--whole-archive "$build/lib/libllb.a" -Wl,--no-whole-archive \
        -pthread -lm -lgcc_s && $CC -std=c11 $strict -I"$LLB_INCLUDE" "$here/isolated.c" "$build/moved/libother.so" \
        -o "$build/bin/isolated_other" || return 1
    [ -z "$musl" ] || { fails_with 'with musl only libllb.so and a program can' run isolated_other text.gguf; return; }
    prints "$text" run isolated_other text.gguf
}

# --- installed library ---------------------------------------------------------------------------

# Installs into a staging folder, as packagers do. No installed path may depend on that folder.
staged() {
    version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$root/Cargo.toml" | head -n 1)
    "$root/scripts/install.sh" "$build/lib" "$build/stage" /usr/local "$1" 1 "$version"
}

pkg_config() {
    staged /usr/local/lib >/dev/null || return 1
    export PKG_CONFIG_SYSROOT_DIR="$build/stage" PKG_CONFIG_LIBDIR="$build/stage/usr/local/lib/pkgconfig"
    # shellcheck disable=SC2046 # a list of flags
    $CC -std=c11 $strict "$examples/simple.c" $(pkg-config --cflags --libs llb) -o "$build/bin/simple_pkg" || return 1
    LD_LIBRARY_PATH=$build/stage/usr/local/lib prints "$text" run simple_pkg text.gguf 'Hello' || return 1
    # shellcheck disable=SC2046
    $CC -std=c11 $strict "$examples/simple.c" $(pkg-config --cflags llb) "$build/stage/usr/local/lib/libllb.a" \
        $(pkg-config --static --libs llb | sed 's/-lllb//') -o "$build/bin/simple_static" || return 1
    prints "$text" run simple_static text.gguf 'Hello' || return 1
    # Its redirections: the order of exit handlers.
    # shellcheck disable=SC2046
    $CC -std=c11 $strict -I"$examples" $(pkg-config --cflags llb) "$here/abi_test.c" "$here/check.c" "$here"/*_cases.c \
        "$build/stage/usr/local/lib/libllb.a" $(pkg-config --static --libs llb | sed 's/-lllb//') -pthread \
        -o "$build/bin/abi_test_static" && within 300 env ${emulated:+LLB_TEST_SLOW=1} "$build/bin/abi_test_static" exit_handlers exits_during_the_first_load
}

cmake_package() {
    for libdir in /usr/local/lib "/usr/local/lib/$machine"; do
        rm -rf "$build/stage" "$build/cmake"
        staged "$libdir" >/dev/null || return 1
        find_llb "$version" && cmake --build "$build/cmake" >"$build/output.cmake" || return 1
        within 120 "$build/cmake/simple" "$LLB_TEST_MODELS/text.gguf" 'Hello' | grep -qF "$text" || return 1
    done
    # Any version satisfies a request without one; a later or incompatible request fails.
    find_llb '' && ! find_llb 99.0 >/dev/null 2>&1 && ! find_llb "$version.99" >/dev/null 2>&1
}

find_llb() {
    rm -rf "$build/cmake"
    cmake -S "$here/package" -B "$build/cmake" -DCMAKE_PREFIX_PATH="$build/stage/usr/local" \
        -DCMAKE_FIND_USE_CMAKE_SYSTEM_PATH=OFF "-DCMAKE_LIBRARY_ARCHITECTURE=$machine" \
        -DSOURCE="$examples" -DWANTED_VERSION="$1"
}

# --- older processors ----------------------------------------------------------------------------

# A processor without AVX computes with a file of kernels beside the library, or beside the program
# that contains it. A program that is linked without the redirection of build.rs gets an error.
old_processor() {
    old=$build/old
    mkdir -p "$old" && cp "${LLB_LIBRARY%/*}/libllb-cpu-sse42.so" "$build/lib/libllb.so.1" "$old" &&
        contain "$old/redirected" -Wl,--wrap=ggml_backend_cpu_reg && contain "$old/plain" &&
        prints "$text" nehalem "$build/bin/simple" && prints "$text" nehalem "$old/redirected" &&
        fails_with 'link libllb.a as' nehalem "$old/plain"
}

# contain PROGRAM [ARGUMENT]: link an example with the static library.
contain() {
    program=$1
    shift
    $CC -std=c11 $strict -I"$LLB_INCLUDE" "$examples/simple.c" "$build/lib/libllb.a" "$@" -pthread -lm -lgcc_s -o "$program"
}

nehalem() { within 300 qemu-x86_64 -cpu Nehalem -E "LD_LIBRARY_PATH=$old" "$1" "$LLB_TEST_MODELS/text.gguf" Hello; }

# --- main ----------------------------------------------------------------------------------------

check 'header as C11' header_as_c
if have "$CXX"; then
    check 'header as C++17' header_as_cxx
    check 'exceptions out of callbacks' exceptions
else
    skip 'header as C++17, exceptions out of callbacks' 'no C++ compiler'
fi
if have nm && have readelf; then
    check 'exports match the header' exports
    check 'SONAME and needed libraries' dependencies
else
    skip 'exports, SONAME and needed libraries' 'no nm or readelf'
fi

for example in simple stream tools; do
    check "example $example: compiles as strict C11" compile "$example" "$examples/$example.c"
    check "example $example" "$example"
done
if [ -n "$emulated" ]; then
    # qemu-user makes a copy of the process instead, and refuses CLONE_FILES.
    echo "no isolation: the emulator has no clone with shared memory and descriptors"
else
    check 'isolation: shared, static, moved and contained library' isolated
fi
real_model=$(ls "${LLB_MODELS:-/nowhere}"/smollm2-135m*.gguf 2>/dev/null | head -n 1)
if [ -n "$real_model" ]; then
    check 'example stream: Ctrl-C' interrupt
else
    skip 'C tests with a real model' 'LLB_MODELS has no smollm2-135m'
fi

if [ ! -f "${LLB_LIBRARY%/*}/libllb-cpu-sse42.so" ] || ! have qemu-x86_64; then
    echo "not on a processor without AVX: needs qemu-x86_64, and libllb-cpu-sse42.so beside the library"
else
    check 'processor without AVX: shared and contained library' old_processor
fi

if have pkg-config; then check 'pkg-config, shared and static' pkg_config; else skip 'pkg-config' 'no pkg-config'; fi
if have cmake; then check 'CMake find_package' cmake_package; else skip 'CMake find_package' 'no cmake'; fi

check 'abi_test: compiles as strict C11' compile abi_test "$here/abi_test.c" "$here/check.c" "$here"/*_cases.c
if [ -n "$emulated" ]; then
    # The groups that valgrind cannot run either: qemu-user ends forked processes by assertions of
    # its own, and has no traps of floating-point operations.
    LLB_TEST_SLOW=1 within 600 "$build/bin/abi_test" || fail 'abi_test'
else
    within 600 "$build/bin/abi_test" || fail 'abi_test'
fi

if [ -n "$emulated" ]; then
    echo "not under valgrind: it runs programs of this machine's processor only"
elif [ -n "$musl" ]; then
    echo "not under valgrind: its libraries need glibc"
elif have valgrind; then
    # Only definite leaks count. Rust tables and reference-counted values are reached through
    # interior pointers, which valgrind reports as possibly lost. Without fair scheduling one thread
    # that computes can keep all others waiting for minutes.
    echo 'under valgrind:'
    LLB_TEST_SLOW=1 within 1200 valgrind -q --fair-sched=try --leak-check=full \
        --suppressions="$here/valgrind.supp" --show-leak-kinds=definite \
        --errors-for-leak-kinds=definite --num-callers=30 --error-exitcode=9 \
        --log-file="$build/output" "$build/bin/abi_test" || fail 'abi_test under valgrind'
else
    skip 'abi_test under valgrind' 'no valgrind'
fi
exit "$status"
