#!/bin/sh
# 64-bit Windows, on a machine with Linux: zig's compilers and their libraries, and Wine.
#
#   scripts/windows.sh setup FOLDER VENV   write the compilers to FOLDER; VENV is a Python environment
#                                          with the package ziglang
#   scripts/windows.sh test-setup FOLDER   install Wine, as root, and compile what it lacks
#   scripts/windows.sh run PROGRAM...      run a program for Windows
#
# In FOLDER, `clang`, `clang++`, `ar` and `rc` compile for Windows, `rust-clang++` links for rustc,
# and `zig` has the headers. `names.cmake` is for llama.cpp's CMake.
set -eu

target=x86_64-pc-windows-gnullvm
short=x86_64-windows-gnu

. "$(dirname "$0")/zig-compilers.sh"

# zig links the libraries of the system's C by itself, from its own definitions. rustc would export
# the C functions of llguidance, too: they leave its list of exports. rustc knows by the end of the
# name which options this linker takes.
write_linker() {
    put "$folder/rust-clang++" <<EOF
#!/bin/sh
for argument; do
    shift
    case \$argument in
    -nolibc | --unwindlib=none | -nodefaultlibs | -lmsvcrt | -lmingwex | -lmingw32 | -Wl,-O1) ;;
    -Wl,*.def)
        list=\${argument#-Wl,}
        sed -i '/^ *"\{0,1\}llg_/d' "\$list"
        set -- "\$@" "\$list"
        ;;
    *) set -- "\$@" "\$argument" ;;
    esac
done
exec "$folder/clang++" "\$@"
EOF
}

case ${1:-} in
setup)
    prepare "$2" "$3"
    ln -sfn "${zig%/*}/lib" "$folder/zig"
    write_linker
    write_tool ar
    write_tool rc
    # ggml's CMake names its libraries without "lib" for Windows, but llama-cpp-sys-2 searches for
    # libggml*.a unless the compiler is Microsoft's.
    put "$folder/names.cmake" <<'EOF'
cmake_language(DEFER DIRECTORY "${CMAKE_SOURCE_DIR}" CALL
    set_target_properties ggml ggml-base ggml-cpu PROPERTIES PREFIX lib)
EOF
    ;;
test-setup)
    folder=$2
    if ! command -v wine >/dev/null && [ "$(id -u)" = 0 ] && [ -z "${LLB_NO_INSTALL:-}" ]; then
        echo "installing: wine wine64"
        apt-get update -qq
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends wine wine64 >/dev/null
    fi
    command -v wine >/dev/null || {
        echo "missing: wine; on Debian: apt-get install wine wine64" >&2
        exit 1
    }
    # Wine has it since version 8.16. Every Windows since 8 has it.
    mkdir -p "$folder/wine"
    cat >"$folder/wine/bcryptprimitives.c" <<'EOF'
#include <windows.h>
#include <ntsecapi.h>
__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE data, SIZE_T size) {
    return RtlGenRandom(data, (ULONG) size);
}
EOF
    "$folder/clang" -shared "$folder/wine/bcryptprimitives.c" -ladvapi32 -o "$folder/wine/bcryptprimitives.dll"
    ;;
run)
    shift
    # No messages of Wine, and no window of an assertion.
    export WINEDEBUG="${WINEDEBUG:--all}" WINEDLLOVERRIDES="mscoree,mshtml=;winedbg.exe=d"
    exec wine "$@"
    ;;
*)
    sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
