#!/bin/sh
# Finds the tools that the build needs, installs missing ones if permitted, and reports the rest.
#
#   scripts/setup.sh --for demo     the tools to build the library and run the demo
#   scripts/setup.sh --for test     also the tools of the tests: valgrind, a JDK, Maven
#   scripts/setup.sh --check        only checks; installs nothing
#
# Installs system packages on Debian and Ubuntu if the user may: root, or sudo without a password.
# Otherwise it prints the command to run, and installs cmake and libclang from the Python package
# index into target/tools. That changes nothing outside the repository. Rust is never installed.
# The environment of private tools is written to target/tools/env.sh; the Makefile reads it.
#
# LLB_NO_INSTALL=1 forbids system packages. With LLB_REQUIRE_ALL=1 a missing optional tool is an
# error.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
tools=$root/target/tools
purpose=demo
check_only=

while [ $# -gt 0 ]; do
    case $1 in
    --for) purpose=${2:-} && shift ;;
    --check) check_only=1 ;;
    *) purpose= ;;
    esac
    shift
done
case $purpose in
demo | test) ;;
*)
    echo "usage: scripts/setup.sh [--for demo|test] [--check]" >&2
    exit 2
    ;;
esac

say() { echo "setup: $*"; }
complain() { echo "setup: $*" >&2; }
have() { command -v "$1" >/dev/null 2>&1; }

# at_least 3.14 3.25.1: succeeds if the second version is at least the first.
at_least() {
    awk -v want="$1" -v got="$2" 'BEGIN {
        split(want, w, "."); split(got, g, ".")
        for (i = 1; i <= 3; i++) {
            if (g[i] + 0 > w[i] + 0) exit 0
            if (g[i] + 0 < w[i] + 0) exit 1
        }
        exit 0
    }'
}

# --- find tools ------------------------------------------------------------------------------

# A C and C++17 compiler with a static standard library, which becomes part of libllb.
find_compiler() {
    have "${CC:-cc}" && have "${CXX:-c++}" || return 1
    echo '#include <optional>' | "${CXX:-c++}" -std=c++17 -x c++ -E - >/dev/null 2>&1 || return 1
    [ "$(uname -s)" != Linux ] || [ -f "$("${CXX:-c++}" -print-file-name=libstdc++.a)" ]
}

find_cmake() {
    for cmake in "${CMAKE:-cmake}" "$tools"/venv/lib/python*/site-packages/cmake/data/bin/cmake \
        "$tools"/wheels/cmake/data/bin/cmake; do
        version=$("$cmake" --version 2>/dev/null | sed -n 's/^cmake version //p') || continue
        [ -n "$version" ] && at_least 3.18 "$version" && return 0
    done
    return 1
}

# The build tool for cmake: make, or ninja if there is no make.
find_build_tool() {
    ninja=
    have make && return 0
    for ninja in ninja "$tools"/venv/bin/ninja "$tools"/wheels/bin/ninja; do
        "$ninja" --version >/dev/null 2>&1 && return 0
    done
    return 1
}

# bindgen loads libclang to read llama.cpp's headers. It searches these folders itself.
find_libclang() {
    libclang=
    folders="${LIBCLANG_PATH:-}"
    [ -f "$folders" ] && libclang=$folders && return 0
    have llvm-config && folders="$folders $(llvm-config --libdir 2>/dev/null || true)"
    for folder in $folders /usr/lib/llvm*/lib /usr/lib/*-linux-gnu /usr/lib64/llvm*/lib* \
        /usr/lib64 /usr/lib /usr/local/llvm*/lib* /usr/local/lib* \
        "$tools"/venv/lib/python*/site-packages/clang/native "$tools"/wheels/clang/native; do
        for file in "$folder"/libclang.so "$folder"/libclang.so.* "$folder"/libclang-[0-9]*.so*; do
            [ -f "$file" ] && libclang=$file && return 0
        done
    done
    return 1
}

# Succeeds if that libclang includes the compiler's own headers (stddef.h, ...). The wheel does not.
libclang_has_headers() {
    folder=$(dirname "$(readlink -f "$libclang")")
    for file in "$folder"/clang/*/include/stddef.h "$folder"/../lib/clang/*/include/stddef.h \
        /usr/lib/clang/*/include/stddef.h; do
        [ -f "$file" ] && return 0
    done
    return 1
}

find_python() {
    python_has=$(python3 -c '
import sys
from importlib.util import find_spec
has = ["python"] if sys.version_info >= (3, 9) else []
has += ["venv"] if find_spec("venv") and find_spec("ensurepip") else []
print(*has, *(["pip"] if find_spec("pip") else []))' 2>/dev/null) || return 1
    case $purpose:$python_has in
    *:python*venv* | demo:python*pip) return 0 ;;
    *) return 1 ;;
    esac
}

find_rust() {
    rust=
    for cargo in cargo "${CARGO_HOME:-$HOME/.cargo}/bin/cargo"; do
        have "$cargo" || continue
        rust=$("$cargo" --version 2>/dev/null | sed 's/^cargo \([0-9.]*\).*/\1/')
        [ -n "$rust" ] && at_least 1.90 "$rust" && return 0
    done
    return 1
}

find_jdk() { "$root/bindings/java/find-jdk.sh" >/dev/null 2>&1; }

# needs: required tools that are missing. wants: missing tools without which something is skipped
# or slower.
needs=
wants=
look() {
    needs=
    wants=
    find_compiler || needs="$needs compiler"
    find_cmake || needs="$needs cmake"
    find_build_tool || needs="$needs ninja"
    find_libclang || needs="$needs libclang"
    find_python || needs="$needs python"
    have ccache || wants="$wants ccache"
    [ "$purpose" = test ] || return 0
    have valgrind || wants="$wants valgrind"
    find_jdk || wants="$wants jdk"
    have mvn || wants="$wants maven"
}

what_it_is() {
    case $1 in
    compiler) echo "a C and C++17 compiler with a static libstdc++" ;;
    cmake) echo "cmake 3.18 or later" ;;
    ninja) echo "make or ninja" ;;
    libclang) echo "libclang, to read llama.cpp's headers" ;;
    python) echo "python3 3.9 or later, with venv and pip" ;;
    ccache) echo "ccache; without it every clean build compiles llama.cpp again" ;;
    valgrind) echo "valgrind; without it the C tests are not checked for memory errors" ;;
    jdk) echo "JDK 22 or later; without it the Java tests are skipped" ;;
    maven) echo "Maven; without it the Java tests are skipped" ;;
    esac
}

# --- system packages -------------------------------------------------------------------------

newest_jdk_package() {
    for version in 25 24 23 22; do
        apt-cache policy "openjdk-$version-jdk-headless" 2>/dev/null |
            grep -q 'Candidate: [0-9]' || continue
        echo "openjdk-$version-jdk-headless"
        return
    done
}

apt_packages() {
    for item in "$@"; do
        case $item in
        compiler) echo g++ ;;
        ninja) echo make ;;
        libclang) echo libclang-dev ;;
        python) echo python3 python3-venv python3-pip ;;
        jdk) newest_jdk_package ;;
        *) echo "$item" ;;
        esac
    done | tr '\n' ' ' | sed 's/ *$//'
}

# Prints the command that installs the packages.
command_for() {
    sudo=
    [ "$(id -u)" = 0 ] || sudo="sudo "
    if have apt-get; then
        packages=$(apt_packages "$@")
        [ -z "$packages" ] || echo "${sudo}apt-get install $packages"
    elif have dnf; then
        packages=
        for item in "$@"; do
            case $item in
            compiler) packages="$packages gcc-c++ libstdc++-static" ;;
            ninja) packages="$packages make" ;;
            libclang) packages="$packages clang-devel" ;;
            python) packages="$packages python3-pip" ;;
            jdk) packages="$packages java-latest-openjdk-devel" ;;
            *) packages="$packages $item" ;;
            esac
        done
        echo "${sudo}dnf install$packages"
    else
        echo "use the package manager of your system"
    fi
}

as_root=
may_install() {
    [ -z "${LLB_NO_INSTALL:-}" ] && have apt-get || return 1
    [ "$(id -u)" = 0 ] && return 0
    have sudo && sudo -n true 2>/dev/null && as_root="sudo -n"
}

apt_updated=
install_packages() {
    packages=$(apt_packages "$@")
    [ -n "$packages" ] || return 1
    if [ -z "$apt_updated" ]; then
        apt_updated=1
        say "running: ${as_root:+sudo }apt-get update"
        $as_root apt-get update -qq >/dev/null 2>&1 ||
            complain "apt-get update failed; using the existing package lists"
        packages=$(apt_packages "$@")
    fi
    say "running: ${as_root:+sudo }apt-get install -y --no-install-recommends $packages"
    mkdir -p "$tools"
    # shellcheck disable=SC2086 # a list of words
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        -o DPkg::Lock::Timeout=120 $packages >"$tools/apt.log" 2>&1 && return 0
    complain "apt-get install failed:"
    tail -n 3 "$tools/apt.log" | sed 's/^/    /' >&2
    return 1
}

# --- private tools ---------------------------------------------------------------------------

wheels_for() {
    for item in "$@"; do
        case $item in
        cmake) echo "cmake>=3.20,<5" ;;
        ninja) echo ninja ;;
        libclang) echo "libclang>=16" ;;
        esac
    done
}

install_wheels() {
    wheels=$(wheels_for "$@")
    say "installing" $wheels "from the Python package index into target/tools"
    mkdir -p "$tools"
    case $python_has in
    *venv*)
        [ -x "$tools/venv/bin/python" ] ||
            python3 -m venv "$tools/venv" >"$tools/pip.log" 2>&1 || return 1
        # shellcheck disable=SC2086
        "$tools/venv/bin/python" -m pip install -q $wheels >"$tools/pip.log" 2>&1
        ;;
    *pip*)
        # shellcheck disable=SC2086
        python3 -m pip install -q --upgrade --target "$tools/wheels" $wheels >"$tools/pip.log" 2>&1
        ;;
    *) return 1 ;;
    esac
}

# Writes the environment of a build with private tools. It is empty if all tools are the system's.
write_environment() {
    new=$(
        echo "# Written by scripts/setup.sh: environment of builds that use private tools."
        [ "$cargo" = cargo ] || echo "export PATH='$(dirname "$cargo")':\"\$PATH\""
        case $cmake in "$tools"/*) echo "export CMAKE='$cmake'" ;; esac
        case $ninja in
        "") ;;
        "$tools"/*)
            echo "export CMAKE_GENERATOR=Ninja"
            echo "export CMAKE_MAKE_PROGRAM='$ninja'"
            ;;
        *) echo "export CMAKE_GENERATOR=Ninja" ;;
        esac
        case $libclang in "$tools"/*) echo "export LIBCLANG_PATH='$(dirname "$libclang")'" ;; esac
        if [ -z "${BINDGEN_EXTRA_CLANG_ARGS:-}" ] && ! libclang_has_headers; then
            include=$("${CC:-cc}" -print-file-name=include)
            echo "export BINDGEN_EXTRA_CLANG_ARGS='-isystem \"$include\"'"
        fi
    )
    [ -f "$tools/env.sh" ] && [ "$new" = "$(cat "$tools/env.sh")" ] && return 0
    mkdir -p "$tools"
    echo "$new" >"$tools/env.sh"
}

# --- main ------------------------------------------------------------------------------------

failed=
if ! find_rust; then
    if [ -n "$rust" ]; then
        complain "Rust 1.90 or later is required, found $rust; run: rustup update stable"
    else
        complain "Rust 1.90 or later is required and not installed. See https://rustup.rs, or run"
        complain "    curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh"
        complain "then open a new shell and run this command again."
    fi
    failed=1
fi

look

# An optional tool that failed to install is not tried again. Remove target/tools to try again.
try=
for item in $wants; do
    grep -qsx "$item" "$tools/not-available" || try="$try $item"
done

if [ -n "$needs$try" ] && [ -z "$check_only" ] && [ -z "$failed" ]; then
    for item in $needs; do
        say "missing: $(what_it_is "$item")"
    done
    if may_install; then
        for item in $try; do
            say "missing: $(what_it_is "$item")"
        done
        # shellcheck disable=SC2086
        [ -z "$needs" ] || install_packages $needs || true
        for item in $try; do
            install_packages "$item" ||
                { mkdir -p "$tools" && echo "$item" >>"$tools/not-available"; }
        done
        look
    else
        # shellcheck disable=SC2086
        by_hand=$(command_for $needs $try)
        [ -z "$by_hand" ] || say "this user may not install packages; to install them: $by_hand"
    fi

    private=
    for item in $needs; do
        case $item in cmake | ninja | libclang) private="$private $item" ;; esac
    done
    if [ -n "$private" ]; then
        # shellcheck disable=SC2086
        install_wheels $private || complain "pip install failed; see target/tools/pip.log"
        look
    fi
fi

for item in $needs; do
    complain "required and missing: $(what_it_is "$item")"
    failed=1
done
for item in $wants; do
    if [ -n "${LLB_REQUIRE_ALL:-}" ] && [ "$purpose" = test ] && [ "$item" != ccache ]; then
        complain "missing, and LLB_REQUIRE_ALL is set: $(what_it_is "$item")"
        failed=1
    elif [ -z "$check_only" ]; then
        say "continuing without $(what_it_is "$item")"
    fi
done
if [ -n "$failed" ]; then
    # shellcheck disable=SC2086
    by_hand=$([ -z "$needs$wants" ] || command_for $needs $wants)
    [ -z "$by_hand" ] || complain "to install the missing tools: $by_hand"
    [ -z "$check_only" ] || [ -z "$needs" ] || complain "or run: make setup"
    exit 1
fi

write_environment

if [ "$(uname -m)" = x86_64 ] && [ -r /proc/cpuinfo ] && [ "${LLB_CPU:-}" != baseline ]; then
    for flag in avx2 fma f16c bmi2; do
        grep -qwm1 "$flag" /proc/cpuinfo && continue
        complain "this processor has no $flag; add CPU=baseline to the make command"
        exit 1
    done
fi
[ -n "$check_only" ] || say "all tools found (Rust $rust, cmake $version)"
