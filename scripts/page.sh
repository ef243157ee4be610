#!/bin/sh
# Builds the page into src/dayfly/page/static, unless what is there is of these very sources.
# Usage: page.sh [test|tools|types]
# "test" also runs the tests of its pure parts; "tools" makes what the browser's tests need; "types" renews src/openapi.d.ts.
set -eu
root=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd -P)
page="$root/page"
static="$root/src/dayfly/page/static"
cache="$root/.cache/page"
mkdir -p "$cache"
say() { printf 'dayfly: %s\n' "$1" >&2; }

# Two calls at once must not share a half-made folder.
exec 9>"$cache/lock"
command -v flock >/dev/null 2>&1 && flock 9

sum() { (cd "$page" && find . -path ./node_modules -prune -o -type f -print | LC_ALL=C sort | xargs cat | cksum); }
fresh_enough() { "$1" -e 'process.exit(process.versions.node.split(".")[0] >= 20 ? 0 : 1)' >/dev/null 2>&1; }

# Node: this machine's, or PyPI's.
if ! { command -v node >/dev/null 2>&1 && command -v npm >/dev/null 2>&1 && fresh_enough node; }; then
    if [ ! -x "$cache/node/bin/node" ]; then
        say 'getting Node from PyPI, once, for the page'
        rm -rf "$cache/node"
        "${DAYFLY_PYTHON:-python3}" -m venv "$cache/node"
        "$cache/node/bin/pip" install --quiet --disable-pip-version-check --require-hashes -r "$root/requirements/node.txt" >&2
    fi
    PATH="$cache/node/bin:$PATH"
fi

modules() {
    [ -e "$page/node_modules/.stamp" ] && [ "$page/node_modules/.stamp" -nt "$page/package-lock.json" ] && return
    say "fetching what the page is built with, once"
    (cd "$page" && npm ci --no-progress --loglevel=error >&2)
    touch "$page/node_modules/.stamp"
}

case "${1:-}" in
types)
    modules
    PYTHONPATH="$root/src" "$root/.venv/bin/python" -c \
        'import json; from dayfly.control.openapi import document; print(json.dumps(document("")))' >"$cache/openapi.json"
    (cd "$page" && npx --no-install openapi-typescript "$cache/openapi.json" --default-non-nullable=false -o "${2:-src/openapi.d.ts}" >&2)
    exit ;;
tools)
    modules
    exit ;;
esac

now=$(sum)
if [ -e "$static/index.html" ] && [ "$(cat "$cache/built" 2>/dev/null)" = "$now" ]; then
    [ "${1:-}" = test ] || exit 0
else
    modules
    say 'building the page'
    (cd "$page" && npm run --silent build >"$cache/build.log" 2>&1) || { cat "$cache/build.log" >&2; exit 1; }
    printf '%s' "$now" >"$cache/built"
fi
if [ "${1:-}" = test ]; then
    modules
    (cd "$page" && npm run --silent test)
fi
