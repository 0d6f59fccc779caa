#!/bin/sh
# scripts/release/system.sh BUILT LIBRARY OUTPUT VERSION SOVERSION: packs the program, the shared
# library, its header and their pages for this processor's Linux, as an archive that can be unpacked
# anywhere and as a package for Debian and Ubuntu:
#
#   OUTPUT/llb-VERSION-linux-PROCESSOR.tar.gz
#   OUTPUT/llb_VERSION_ARCHITECTURE.deb, if there is dpkg-deb
#
# BUILT has the program llb, the folder LIBRARY has libllb.so and files of kernels. The static
# library is left out: a program that links it needs the versions of this machine.
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
built=$1 library=$2 output=$3 version=$4 soversion=$5
processor=$(uname -m)
name=llb-$version-linux-$processor
mkdir -p "$output"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# stage DESTDIR PREFIX LIBDIR: install everything.
stage() {
    "$root/scripts/install.sh" "$library" "$1" "$2" "$3" "$soversion" "$version" >/dev/null
    install -D -m 755 "$built/llb" "$1$2/bin/llb"
    install -d "$1$2/share/man/man1"
    "$built/llb" man --out "$1$2/share/man/man1" >/dev/null
    gzip -9n "$1$2"/share/man/man1/*.1
    complete() {
        install -d "$(dirname "$prefix/$2")"
        "$built/llb" completions "$1" >"$prefix/$2"
    }
    prefix=$1$2
    complete bash share/bash-completion/completions/llb
    complete fish share/fish/vendor_completions.d/llb.fish
    complete zsh share/zsh/vendor-completions/_llb
    # The works that the program contains besides the library's.
    cat "$root/cli/NOTICE" >>"$prefix/share/doc/llb/NOTICE"
}

# The archive finds its files from its own place.
stage "$work" /llb /llb/lib
sed -i "s|^prefix=.*|prefix=\${pcfiledir}/../..|; s|^libdir=.*|libdir=\${prefix}/lib|" \
    "$work/llb/lib/pkgconfig/llb.pc"
mv "$work/llb" "$work/$name"
tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@${SOURCE_DATE_EPOCH:-0}" \
    -cf - "$name" | gzip -9n >"$output/$name.tar.gz"
echo "    $name.tar.gz"

command -v dpkg-deb >/dev/null || {
    "$root/scripts/skip.sh" "the package for Debian" "no dpkg-deb"
    exit 0
}
architecture=$(dpkg --print-architecture)
package=$work/package
stage "$package" /usr "/usr/lib/$processor-linux-gnu"
glibc=$(objdump -T "$built/llb" "$library/libllb.so" | grep -o 'GLIBC_[0-9.]*' | sort -Vu | tail -n 1)
mv "$package/usr/share/doc/llb/LICENSE" "$package/usr/share/doc/llb/copyright"
mkdir "$package/DEBIAN"
cat >"$package/DEBIAN/control" <<END
Package: llb
Version: $version
Architecture: $architecture
Maintainer: The developers of llb
Section: science
Priority: optional
Depends: libc6 (>= ${glibc#GLIBC_}), libgcc-s1
Installed-Size: $(du -sk "$package/usr" | cut -f 1)
Description: local GGUF chat models, from a terminal, over HTTP and in C
 The program llb runs GGUF chat models and serves them by the protocols of OpenAI,
 Anthropic and Ollama. The shared library libllb runs them inside of a process.
END
echo "activate-noawait ldconfig" >"$package/DEBIAN/triggers"
file=llb_${version}_$architecture.deb
dpkg-deb --build --root-owner-group -Zxz "$package" "$output/$file" >/dev/null
echo "    $file, for glibc ${glibc#GLIBC_} and later"
