#!/bin/sh
# 64-bit ARM on a machine with another processor: Debian's cross compilers, and an emulator.
#
#   scripts/aarch64.sh setup            install what is missing: packages as root, Rust's library
#   scripts/aarch64.sh run COMMAND...   run a command; ARM programs that it starts run in qemu
#
# The emulator is registered in a user namespace: only the command and the processes that it starts
# see it, and no privileges are needed. QEMU_CPU names the processor (`qemu-aarch64 -cpu help`),
# QEMU_LD_PREFIX the folder of the ARM system; the default is that of the cross compilers.
set -eu

target=aarch64-unknown-linux-gnu
packages="gcc-aarch64-linux-gnu g++-aarch64-linux-gnu qemu-user"

missing() {
    for tool in aarch64-linux-gnu-gcc aarch64-linux-gnu-g++ qemu-aarch64; do
        command -v "$tool" >/dev/null 2>&1 || echo "$tool"
    done
}

setup() {
    if [ -n "$(missing)" ] && [ "$(id -u)" = 0 ] && [ -z "${LLB_NO_INSTALL:-}" ]; then
        echo "installing: $packages"
        apt-get update -qq
        # shellcheck disable=SC2086 # a list of words
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $packages \
            >/dev/null
    fi
    [ -z "$(missing)" ] || {
        echo "missing:" $(missing)"; on Debian: apt-get install $packages" >&2
        exit 1
    }
    [ -d "$(rustc --print sysroot)/lib/rustlib/$target" ] || rustup -q target add "$target"
}

# The first bytes of an ELF file: 64 bits, little-endian, a program or a library for machine 0xb7.
# F: the kernel opens qemu now, so that it runs after a change of the root too.
register() {
    # shellcheck disable=SC3037 # the kernel reads the escapes
    printf '%s' ':llb-aarch64:M::\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'\
':\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'":$1:F"
}

case ${1:-} in
setup) setup ;;
run)
    shift
    qemu=$(command -v qemu-aarch64) || { echo "no qemu-aarch64; run: $0 setup" >&2; exit 1; }
    : "${QEMU_LD_PREFIX:=/usr/aarch64-linux-gnu}"
    export QEMU_LD_PREFIX
    # shellcheck disable=SC2016 # for the inner shell
    exec unshare --user --map-root-user --mount sh -c '
        at=/proc/sys/fs/binfmt_misc
        if mount -t binfmt_misc none "$at" 2>/dev/null; then printf "%s" "$1" >"$at/register"
        else echo "this kernel has no binfmt_misc in a user namespace (Linux 6.7)" >&2; exit 1; fi
        shift
        exec "$@"' sh "$(register "$qemu")" "$@"
    ;;
*)
    sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
