#!/bin/sh
# macOS on 64-bit ARM, on a machine with Linux: zig's compilers, and the linker that rustup brings.
#
#   scripts/macos.sh setup FOLDER VENV   write the compilers to FOLDER; VENV is a Python environment
#                                        with the package ziglang
#   scripts/macos.sh check LIBRARY       what the library exports and needs
#
# In FOLDER, `clang`, `clang++` and `ar` compile for macOS, `ld64.lld` links for rustc, and `zig` has
# the headers. `lib` has what zig knows of the system's library, zig's C++ library, and the names that
# llb uses of two frameworks. Apple's SDK is not needed, so there is no Metal.
set -eu
export LC_ALL=C

target=aarch64-apple-darwin
# The version is that of MACOSX_DEPLOYMENT_TARGET in the Makefile.
short=aarch64-macos.13.3

. "$(dirname "$0")/zig-compilers.sh"

# write_framework NAME SYMBOLS. A definition of what llb uses of a framework, in the format of the SDK.
write_framework() {
    mkdir -p "$folder/lib/frameworks/$1.framework"
    cat >"$folder/lib/frameworks/$1.framework/$1.tbd" <<EOF
--- !tapi-tbd
tbd-version:     4
targets:         [ arm64-macos ]
install-name:    '/System/Library/Frameworks/$1.framework/Versions/A/$1'
exports:
  - targets:         [ arm64-macos ]
    symbols:         [ $2 ]
...
EOF
}

write_libraries() {
    mkdir -p "$folder/lib"
    compile_libraries "$folder/lib" libc++.a libc++abi.a
    # Its list for arm64e is that of arm64, too. The linker does not know the newest processors.
    sed 's/arm64e-macos/arm64-macos/g; s/arm64e\.x1-[a-z]*/arm64e-maccatalyst/g' \
        "$folder/zig/libc/darwin/libSystem.tbd" >"$folder/lib/libSystem.tbd"
    write_framework CoreFoundation "_CFArrayCreate, _CFArrayGetCount, _CFArrayGetValueAtIndex,
        _CFDataGetBytePtr, _CFDataGetLength, _CFDictionaryGetValueIfPresent, _CFEqual,
        _CFNumberGetValue, _CFRelease, _CFRetain, _CFStringCreateWithBytesNoCopy, _CFStringGetBytes,
        _CFStringGetCStringPtr, _CFStringGetLength, _kCFAllocatorDefault, _kCFAllocatorNull,
        _kCFTypeArrayCallBacks"
    write_framework Security "_SecCertificateCopyData, _SecCopyErrorMessageString,
        _SecTrustSettingsCopyCertificates, _SecTrustSettingsCopyTrustSettings"
    mkdir -p "$folder/lib/lld"
    ln -sfn "$(dirname "$(rustc --print target-libdir)")/bin/rust-lld" "$folder/lib/lld/ld64.lld"
}

# rustc asks for frameworks that only Metal and Accelerate need, and for libraries that are parts of
# libSystem. It would export the C functions of llguidance, too: they leave its list of exports.
write_linker() {
    put "$folder/ld64.lld" <<EOF
#!/bin/sh
before=
for argument; do
    shift
    case \$before\$argument in
    -frameworkSecurity | -frameworkCoreFoundation) set -- "\$@" -framework "\$argument" ;;
    -framework* | -flavor* | -liconv | -lc | -lm) ;;
    -exported_symbols_list?*)
        sed -i '/^_llg_/d' "\$argument"
        set -- "\$@" "\$argument"
        ;;
    -Wl,*) set -- "\$@" \$(echo "\${argument#-Wl,}" | tr , ' ') ;;
    *) set -- "\$@" "\$argument" ;;
    esac
    case \$argument in -framework | -flavor | -exported_symbols_list) before=\$argument ;; *) before= ;; esac
done
exec "$folder/lib/lld/ld64.lld" -L"$folder/lib" -F"$folder/lib/frameworks" "\$@" -lc++abi
EOF
}

case ${1:-} in
setup)
    prepare "$2" "$3"
    ln -sfn "${zig%/*}/lib" "$folder/zig"
    write_tool ar
    # CMake wants it, although libraries that are not shared have no such name.
    mkdir -p "$folder/tools"
    put "$folder/tools/install_name_tool" </dev/null
    write_linker
    once write_libraries
    ;;
check)
    library=$2
    { command -v llvm-nm && command -v llvm-objdump; } >/dev/null || {
        echo "missing: llvm-nm, llvm-objdump; on Debian: apt-get install llvm" >&2
        exit 1
    }
    root=$(cd "$(dirname "$0")/.." && pwd)
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    sed -n 's/^[a-z].*[ *]\(llb_[a-z_]*\)(.*/_\1/p' "$root/include/llb.h" | sort >"$work/declared"
    llvm-nm -gjU "$library" | sort >"$work/exported"
    diff "$work/declared" "$work/exported"
    llvm-objdump --macho --dylibs-used "$library" | sed -n 's/^\t\([^ ]*\) .*/\1/p' >"$work/used"
    cat >"$work/expected" <<'EOF'
/System/Library/Frameworks/CoreFoundation.framework/Versions/A/CoreFoundation
/System/Library/Frameworks/Security.framework/Versions/A/Security
/usr/lib/libSystem.B.dylib
@rpath/libllb.1.dylib
EOF
    sort "$work/used" | diff "$work/expected" -
    # A processor of Apple runs signed programs only. The linker signs as nobody.
    llvm-objdump --macho --private-headers "$library" | grep -q LC_CODE_SIGNATURE
    echo "$(wc -l <"$work/declared") functions, no other libraries, signed"
    ;;
*)
    sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
