#!/bin/sh
# scripts/install.sh BUILT DESTDIR PREFIX LIBDIR SOVERSION VERSION
#
# Installs the build in folder BUILT for `make install`. With DESTDIR, for packages, all files go
# below that folder.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
built=$1 destdir=$2 prefix=$3 libdir=$4 soversion=$5 version=$6
real=libllb.so.$soversion.$version
doc=$destdir$prefix/share/doc/llb

put() {
    install -d "$(dirname "$3")"
    install -m "$1" "$2" "$3"
    echo "  $3"
}

# Replaces the placeholders in templates, written @LIKE_THIS@.
fill() {
    filled=$(mktemp)
    sed -e "s|@PREFIX@|$prefix|g" -e "s|@LIBDIR@|$libdir|g" -e "s|@VERSION@|$version|g" \
        -e "s|@SOVERSION@|$soversion|g" "$1" >"$filled"
    put 644 "$filled" "$2"
    rm -f "$filled"
}

echo "==> install into $destdir$prefix"
put 755 "$built/libllb.so" "$destdir$libdir/$real"
ln -sf "$real" "$destdir$libdir/libllb.so.$soversion"
ln -sf "libllb.so.$soversion" "$destdir$libdir/libllb.so"
for file in "$built"/libllb-cpu-*.so "$built"/libllb-cuda.so \
    "$built"/libllb-rpc.so "$built"/libllb-vulkan.so; do
    [ -f "$file" ] || continue
    put 755 "$file" "$destdir$libdir/${file##*/}"
done
# Packages of a release have none.
[ ! -f "$built/libllb.a" ] || put 644 "$built/libllb.a" "$destdir$libdir/libllb.a"
put 644 "$root/include/llb.h" "$destdir$prefix/include/llb.h"

fill "$root/scripts/llb.pc.in" "$destdir$libdir/pkgconfig/llb.pc"
for file in "$root"/bindings/c/cmake/*.cmake.in "$root"/bindings/c/cmake/*.cmake; do
    [ -f "$file" ] || continue
    fill "$file" "$destdir$libdir/cmake/llb/$(basename "${file%.in}")"
done

for file in LICENSE LICENSE-MIT LICENSE-APACHE NOTICE; do
    put 644 "$root/$file" "$doc/$file"
done

if [ -z "$destdir" ] && [ "$(id -u)" = 0 ] && command -v ldconfig >/dev/null; then
    ldconfig
fi
