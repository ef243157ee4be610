#!/bin/sh
# Makes or refreshes .venv. Usage: setup.sh run|operator|dev|docs
# "run" holds what `dayfly` itself needs; "operator" adds what speaks with clusters, "dev" what tests and linters need.
# "docs" makes a site of the docs, and has a place of its own.
# Quick the second time: a stamp newer than the locked requirements means there is nothing to do.
set -eu
kind=${1:-run}
# Where it really is: the way by which it was called may be a link that goes.
root=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd -P)
venv="$root/.venv"
[ "$kind" != docs ] || venv="$root/.cache/docs"
stamp="$venv/.stamp-$kind"
wish="$root/requirements/$kind.txt"
[ -e "$stamp" ] && [ "$stamp" -nt "$wish" ] && exit 0

say() { printf 'dayfly: %s\n' "$1" >&2; }
fresh_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

python=
for candidate in "${DAYFLY_PYTHON:-python3}" python3.13 python3.12 python3.11 /usr/bin/python3; do
    if command -v "$candidate" >/dev/null 2>&1 && fresh_enough "$candidate"; then python=$candidate; break; fi
done
[ -n "$python" ] || { say 'Python 3.11 or newer is needed; install it or name it in DAYFLY_PYTHON.'; exit 1; }

# Two calls at once (make -j, two terminals) must not share a half-made environment.
mkdir -p "$root/.cache"
exec 9>"$root/.cache/setup.lock"
command -v flock >/dev/null 2>&1 && flock 9
[ -e "$stamp" ] && [ "$stamp" -nt "$wish" ] && exit 0

say "setting up $venv ($kind), once"
if [ ! -x "$venv/bin/pip" ]; then
    rm -rf "$venv"
    if ! "$python" -m venv "$venv" >"$root/.cache/venv.log" 2>&1; then
        # Debian ships Python without ensurepip.
        rm -rf "$venv"
        if ! "$root/scripts/debian.sh" python3-venv || ! "$python" -m venv "$venv" >"$root/.cache/venv.log" 2>&1; then
            cat "$root/.cache/venv.log" >&2
            say 'could not make a virtual environment; install python3-venv and try again.'
            exit 1
        fi
    fi
fi
# pip compiles one module after the other; all processors do it in less time.
install() { "$venv/bin/pip" install --quiet --no-compile --disable-pip-version-check --require-hashes -r "$wish" "$@" >&2; }
# What one checkout has fetched, the next one takes: to choose among all the files of an index is three quarters of an install.
# What is taken is held to the same hashes.
take_or_fetch() {
    wheels="${DAYFLY_CACHE:-${HOME:-$root}/.cache/dayfly}/wheels"
    mkdir -p "$wheels" 2>/dev/null || { install; return; }
    tag=$("$venv/bin/python" -c 'import sys, sysconfig; print(sysconfig.get_platform(), sys.implementation.cache_tag, sep="-")')
    mine="$wheels/$(cksum <"$wish" | cut -d ' ' -f 1)-$tag"
    [ ! -d "$mine" ] || ! install --no-deps --no-index --find-links "$mine" || return 0
    fetched="$wheels/.$$"
    "$venv/bin/pip" download --quiet --no-deps --disable-pip-version-check --require-hashes -r "$wish" -d "$fetched" >&2
    install --no-deps --no-index --find-links "$fetched"
    rm -rf "$mine"
    mv "$fetched" "$mine"
    find "$wheels" -mindepth 1 -maxdepth 1 -mtime +7 ! -path "$mine" -exec rm -rf {} +
}
if [ "$kind" = dev ]; then take_or_fetch; else install; fi
site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
# Where PYTHONDONTWRITEBYTECODE is set, nothing else would cache these modules. Modules that only linters import
# are skipped.
unused='/(pip|setuptools|pkg_resources|mypy|mypyc|coverage)/|/pygments/lexers/|/tests?/'
"$venv/bin/python" -m compileall -q -j 0 -x "$unused" "$site" >/dev/null 2>&1 || true
[ "$kind" != docs ] || { touch "$stamp"; exit 0; }
printf '%s\n' "$root/src" >"$site/dayfly-checkout.pth"
"$venv/bin/python" -m compileall -q -j 0 "$root/src" >&2 || true
touch "$stamp"
# What is more holds what is less.
[ "$kind" = run ] || touch "$venv/.stamp-run"
[ "$kind" = dev ] && touch "$venv/.stamp-operator"
exit 0
