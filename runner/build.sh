#!/bin/sh
# Builds the runner program. Usage: build.sh OUT [ARCH]
# Without ARCH: for this machine, with its own C compiler if that can link statically (a second, no download).
# With ARCH (x86_64 or aarch64), or without a compiler: with zig, which builds the small portable program for clusters.
# Zig is downloaded once for all checkouts (hash-locked, about 440 MB unpacked) into ~/.cache/dayfly/runner or
# $DAYFLY_CACHE/runner. After that it also builds for this machine: its program starts 0.3 ms sooner, because musl does not
# query CPU features, which is slow in a virtual machine.
# Results are cached by the hash of their sources. A call that finds OUT newer than all sources does nothing else.
set -eu
out=${1:?usage: build.sh OUT [ARCH]}
arch=${2:-}
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
root=${here%/*}
stamp="$out.made-for"

fresh() {
    [ -x "$out" ] && [ -e "$stamp" ] || return 1
    read -r made <"$stamp" && [ "$made" = "${arch:-native}" ] || return 1
    for source in "$here"/*.c "$here"/*.h "$here/build.sh" "$root/requirements/zig.txt"; do
        [ "$source" -nt "$stamp" ] && return 1
    done
    return 0
}
fresh && exit 0

home=${DAYFLY_CACHE:-${HOME:+$HOME/.cache/dayfly}}
cache=${home:-$root/.cache}/runner
mkdir -p "$cache" 2>/dev/null && [ -w "$cache" ] || cache=$root/.cache/runner

say() { printf 'dayfly: %s\n' "$1" >&2; }

flags="-std=c11 -D_GNU_SOURCE -Os -Wall -Wextra -Wshadow -Wconversion -static
       -ffunction-sections -fdata-sections -Wl,--gc-sections -s
       -fno-unwind-tables -fno-asynchronous-unwind-tables" # unwind tables would be a sixth of the program

links_statically() {
    command -v cc >/dev/null 2>&1 || return 1
    printf 'int main(void) { return 0; }\n' | cc -static -x c -o "$work/try" - 2>/dev/null
}

locked="$root/requirements/zig.txt"
venv="$cache/zig-$(sha256sum <"$locked" | cut -c1-16)"
zig_is_there() { [ -e "$venv/.stamp" ]; }

zig() {
    if ! zig_is_there; then
        say "fetching the zig compiler into $venv, once"
        rm -rf "$venv"
        "${DAYFLY_PYTHON:-python3}" -m venv "$venv" >&2
        "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes -r "$locked" >&2
        touch "$venv/.stamp"
    fi
    # Zig's cache is next to it.
    ZIG_GLOBAL_CACHE_DIR="$cache/zig-cache" ZIG_LOCAL_CACHE_DIR="$cache/zig-cache" \
        "$venv/bin/python" -m ziglang cc -target "$arch-linux-musl" "$@"
}

mkdir -p "$cache" "$(dirname -- "$out")"
# One build at a time: two would share a half-downloaded compiler.
exec 9>"$cache/lock"
command -v flock >/dev/null 2>&1 && flock 9
work=$(mktemp -d -p "$cache")
trap 'rm -rf "$work"' EXIT INT TERM
# The stamp's time is now: a source edited during the build is newer than it.
printf '%s\n' "${arch:-native}" >"$work/stamp"

compiler=zig
if [ -z "$arch" ]; then
    arch=$(uname -m)
    if ! zig_is_there && links_statically; then compiler=cc; fi
fi
# The machine's own compiler may print any warning, which must not prevent a first run.
[ "$compiler" = zig ] && flags="$flags -Werror"
case $arch in
x86_64 | aarch64) ;;
*) say "no runner for the architecture $arch: x86_64 and aarch64 are known"; exit 1 ;;
esac
sum=$(cat "$here"/*.c "$here"/*.h "$here/build.sh" "$root/requirements/zig.txt" | sha256sum | cut -c1-16)
kept="$cache/dayfly-runner-$arch-$compiler-$sum"
if [ ! -x "$kept" ]; then
    # shellcheck disable=SC2086 # the flags are words
    "$compiler" $flags -o "$work/dayfly-runner" "$here"/*.c
    chmod 755 "$work/dayfly-runner"
    # Remove old results, but not those that another checkout is likely to use.
    find "$cache" -maxdepth 1 -name "dayfly-runner-$arch-$compiler-*" -mtime +7 -delete
    mv -f "$work/dayfly-runner" "$kept"
fi
# Renamed into place, because a running program cannot be overwritten.
cp "$kept" "$out.new.$$"
mv -f "$out.new.$$" "$out"
mv -f "$work/stamp" "$stamp"
