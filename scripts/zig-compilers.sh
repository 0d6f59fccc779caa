# Compilers of zig for another system. musl.sh, macos.sh and windows.sh source it. They set:
#
#   folder  where the compilers are written
#   zig     the program zig
#   short   zig's name of the system

# Writes standard input to an executable file, unless the file is the same already: ccache sees its
# time.
put() {
    cat >"$1.new"
    chmod +x "$1.new"
    if cmp -s "$1.new" "$1"; then rm "$1.new"; else mv "$1.new" "$1"; fi
}

# write_compiler NAME COMMAND. zig does not know the names of Rust's targets, and 64 bits and
# -march=x86-64 are its default.
write_compiler() {
    put "$folder/$1" <<EOF
#!/bin/sh
# $("$zig" version)
for argument; do
    shift
    case \$argument in
    --target=* | -march=x86-64 | -m64 | -arch | arm64 | -mmacosx-version-min=*) ;;
    *) set -- "\$@" "\$argument" ;;
    esac
done
# For macOS, zig then leaves an empty file in the working folder.
[ "\$*" != --version ] || cd "$folder"
export ZIG_GLOBAL_CACHE_DIR="$folder/cache" ZIG_LOCAL_CACHE_DIR="$folder/cache"
exec "$zig" $2 -target $short "\$@"
EOF
}
