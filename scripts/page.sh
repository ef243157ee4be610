#!/bin/sh
# Builds the page into src/dayfly/page/static, unless the existing files are from the same sources.
# Usage: page.sh [test|tools|types]
# "test" also runs the unit tests. "tools" installs the tools for browser tests. "types" regenerates src/openapi.d.ts.
set -eu
root=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd -P)
page="$root/page"
static="$root/src/dayfly/page/static"
cache="$root/.cache/page"
mkdir -p "$cache"
say() { printf 'dayfly: %s\n' "$1" >&2; }

# Parallel calls must not share an incomplete folder.
exec 9>"$cache/lock"
command -v flock >/dev/null 2>&1 && flock 9

digest() { if command -v sha256sum >/dev/null 2>&1; then sha256sum; else cksum; fi | cut -d ' ' -f 1; }
sum() {
    (cd "$page" && find . -path ./node_modules -prune -o -type f -print | LC_ALL=C sort |
        while read -r file; do printf '%s\n' "$file"; cat "$file"; done | digest)
}
fresh_enough() { "$1" -e 'process.exit(process.versions.node.split(".")[0] >= 20 ? 0 : 1)' >/dev/null 2>&1; }

# Node from this machine, or from PyPI.
node_and_npm() {
    if ! { command -v node >/dev/null 2>&1 && command -v npm >/dev/null 2>&1 && fresh_enough node; }; then
        if [ ! -x "$cache/node/bin/node" ]; then
            say 'downloading Node from PyPI, once, to build the page'
            rm -rf "$cache/node"
            "${DAYFLY_PYTHON:-python3}" -m venv "$cache/node"
            "$cache/node/bin/pip" install --quiet --disable-pip-version-check --require-hashes -r "$root/requirements/node.txt" >&2
        fi
        PATH="$cache/node/bin:$PATH"
    fi
}

modules() {
    [ -e "$page/node_modules/.stamp" ] && [ "$page/node_modules/.stamp" -nt "$page/package-lock.json" ] && return
    say "downloading the packages that build the page, once"
    (cd "$page" && npm ci --no-progress --loglevel=error >&2)
    touch "$page/node_modules/.stamp"
}

case "${1:-}" in
types)
    node_and_npm
    modules
    PYTHONPATH="$root/src" "$root/.venv/bin/python" -c \
        'import json; from dayfly.server.http.openapi import document; print(json.dumps(document("")))' >"$cache/openapi.json"
    (cd "$page" && npx --no-install openapi-typescript "$cache/openapi.json" --default-non-nullable=false -o "${2:-src/openapi.d.ts}" >&2)
    exit ;;
tools)
    node_and_npm
    modules
    exit ;;
esac

# The result is cached for all checkouts.
now=$(sum)
kept="${DAYFLY_CACHE:-${HOME:-$root}/.cache/dayfly}/page"
if ! { [ -e "$static/index.html" ] && [ "$(cat "$cache/built" 2>/dev/null)" = "$now" ]; }; then
    if [ ! -e "$kept/$now/index.html" ]; then
        node_and_npm
        modules
        say 'building the page'
        (cd "$page" && npm run --silent build >"$cache/build.log" 2>&1) || { cat "$cache/build.log" >&2; exit 1; }
        mkdir -p "$kept" && rm -rf "$kept/.$$" && cp -R "$static" "$kept/.$$" && mv "$kept/.$$" "$kept/$now"
        find "$kept" -mindepth 1 -maxdepth 1 -mtime +7 ! -name "$now" -exec rm -rf {} +
    else
        rm -rf "$static" && cp -R "$kept/$now" "$static"
    fi
    printf '%s' "$now" >"$cache/built"
fi
if [ "${1:-}" = test ]; then
    node_and_npm
    modules
    (cd "$page" && npm run --silent test)
fi
