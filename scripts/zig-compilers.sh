# Compilers of zig for another system. musl.sh, macos.sh and windows.sh source this file. They set:
#
#   target  Rust's name of the system
#   short   zig's name of the system

# prepare FOLDER VENV. Writes the compilers to FOLDER; VENV is a Python environment with the package
# ziglang. Sets `folder` and `zig`, the program. Installs Rust's library for the target.
prepare() {
    folder=$1
    zig=$("$2/bin/python" -c 'import ziglang; print(ziglang.__path__[0] + "/zig")')
    [ -d "$(rustc --print sysroot)/lib/rustlib/$target" ] || rustup -q target add "$target"
    mkdir -p "$folder"
    write_compiler clang cc
    write_compiler clang++ c++
}

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

# write_tool NAME. A tool of zig, such as ar.
write_tool() {
    put "$folder/$1" <<EOF
#!/bin/sh
exec "$zig" $1 "\$@"
EOF
}

# compile_libraries FOLDER NAME... zig compiles its libraries when it first links a program with them.
# A cache of its own has no others.
compile_libraries() {
    to=$1
    shift
    cache=$(mktemp -d)
    echo 'int main() { throw 1; }' >"$cache/program.cpp"
    ZIG_GLOBAL_CACHE_DIR="$cache" ZIG_LOCAL_CACHE_DIR="$cache" \
        "$zig" c++ -target "$short" -dynamic -O2 "$cache/program.cpp" -o "$cache/program"
    for name; do
        find "$cache" -name "$name" -exec cp {} "$to/$name" \;
    done
    rm -rf "$cache"
}

# once COMMAND. Runs a command that writes FOLDER/lib, unless this zig and this Rust have made it.
once() {
    made="$("$zig" version) $(rustc --version)"
    [ "$(cat "$folder/lib/made" 2>/dev/null)" = "$made" ] || {
        "$@"
        echo "$made" >"$folder/lib/made"
    }
}
