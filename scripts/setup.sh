#!/bin/sh
# Creates or updates .venv. Usage: setup.sh run|operator|dev|docs
# "run" contains the dependencies of `dayfly`. "operator" adds those for clusters, "dev" those of tests and linters.
# "docs" builds a site of the docs in a separate environment.
# A repeated call is fast: if a stamp is newer than the locked requirements, there is nothing to do.
set -eu
kind=${1:-run}
# The real path, because this may be called through a link that is removed later.
root=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd -P)
venv="$root/.venv"
[ "$kind" != docs ] || venv="$root/.cache/docs"
stamp="$venv/.stamp-$kind"
locked="$root/requirements/$kind.txt"
[ -e "$stamp" ] && [ "$stamp" -nt "$locked" ] && exit 0

say() { printf 'dayfly: %s\n' "$1" >&2; }
fresh_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

python=
for candidate in "${DAYFLY_PYTHON:-python3}" python3.13 python3.12 python3.11 /usr/bin/python3; do
    if command -v "$candidate" >/dev/null 2>&1 && fresh_enough "$candidate"; then python=$candidate; break; fi
done
[ -n "$python" ] || { say 'Python 3.11 or newer is needed; install it or name it in DAYFLY_PYTHON.'; exit 1; }

# Parallel calls (make -j, two terminals) must not share an incomplete environment.
mkdir -p "$root/.cache"
exec 9>"$root/.cache/setup.lock"
command -v flock >/dev/null 2>&1 && flock 9
[ -e "$stamp" ] && [ "$stamp" -nt "$locked" ] && exit 0

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
# pip compiles modules one after the other; compileall uses all processors.
install() { "$venv/bin/pip" install --quiet --no-compile --disable-pip-version-check --require-hashes -r "$locked" "$@" >&2; }
# Downloads are cached for all checkouts: choosing among all files of an index takes three quarters of an install. Cached files
# must match the same hashes.
take_or_fetch() {
    wheels="${DAYFLY_CACHE:-${HOME:-$root}/.cache/dayfly}/wheels"
    mkdir -p "$wheels" 2>/dev/null || { install; return; }
    tag=$("$venv/bin/python" -c 'import sys, sysconfig; print(sysconfig.get_platform(), sys.implementation.cache_tag, sep="-")')
    mine="$wheels/$(cksum <"$locked" | cut -d ' ' -f 1)-$tag"
    [ ! -d "$mine" ] || ! install --no-deps --no-index --find-links "$mine" || return 0
    fetched="$wheels/.$$"
    "$venv/bin/pip" download --quiet --no-deps --disable-pip-version-check --require-hashes -r "$locked" -d "$fetched" >&2
    install --no-deps --no-index --find-links "$fetched"
    rm -rf "$mine"
    mv "$fetched" "$mine"
    find "$wheels" -mindepth 1 -maxdepth 1 -mtime +7 ! -path "$mine" -exec rm -rf {} +
}
if [ "$kind" = dev ]; then take_or_fetch; else install; fi
site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
# If PYTHONDONTWRITEBYTECODE is set, no later call would compile these modules. Modules that only linters import
# are skipped.
unused='/(pip|setuptools|pkg_resources|mypy|mypyc|coverage)/|/pygments/lexers/|/tests?/'
"$venv/bin/python" -m compileall -q -j 0 -x "$unused" "$site" >/dev/null 2>&1 || true
[ "$kind" != docs ] || { touch "$stamp"; exit 0; }
printf '%s\n' "$root/src" >"$site/dayfly-checkout.pth"
"$venv/bin/python" -m compileall -q -j 0 "$root/src" >&2 || true
touch "$stamp"
# Larger environments include smaller ones.
[ "$kind" = run ] || touch "$venv/.stamp-run"
[ "$kind" = dev ] && touch "$venv/.stamp-operator"
exit 0
