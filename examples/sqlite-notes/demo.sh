#!/bin/sh
# The demonstration for `make run`: one sandbox from creation to deletion, and then a pool, in a temporary Dayfly home.
set -eu
exec 2>&1 # results and messages in one stream, in order
cd "$(dirname -- "$0")/../.."
example=examples/sqlite-notes
scratch=$(mktemp -d)
export DAYFLY_HOME="$scratch/home"
databases="$scratch/databases"
mkdir "$databases"

clean_up() {
    code=$?
    trap - EXIT
    # An interrupted demonstration leaves nothing behind either, including data that steps keep in /dev/shm.
    if [ "$code" -ne 0 ]; then
        for what in 'sandbox delete notes-demo' 'sandbox delete first' 'sandbox delete second' 'pool delete notes'; do
            # shellcheck disable=SC2086 # the words of a command
            ./dayfly $what --timeout 30s >/dev/null 2>&1 || true
        done
    fi
    ./dayfly down >/dev/null 2>&1 || true
    rm -rf -- "$scratch"
    exit "$code"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

say() { printf '\n\033[1m%s\033[0m\n' "$1"; }
[ -t 1 ] && [ -z "${NO_COLOR:-}" ] || say() { printf '\n%s\n' "$1"; }
show() { printf '$ %s\n' "$*"; "$@"; }

say '1. A server on this machine, with a home of its own.'
show ./dayfly up --detach --port 0

say '2. What is going to happen: two create steps, one after the other; then the forked process; at the end the way back.'
show ./dayfly plan -f "$example" --set "folder=$databases"

say '3. Do it: the platform team'\''s step makes a database, the product team'\''s step fills it, the fork starts with its path.'
show ./dayfly apply -f "$example" --set "folder=$databases"

say '4. What the steps have made, and the file itself.'
show ./dayfly env notes-demo
show ls "$databases"

say '5. The forked process reads that database: its answer to GET /notes.'
address=$(./dayfly sandbox get notes-demo -o json |
    .venv/bin/python -c 'import json, sys; print(json.load(sys.stdin)["endpoints"][0]["url"])')
printf '$ GET %s/notes\n' "$address"
.venv/bin/python -c 'import sys, urllib.request as web; print(web.urlopen(sys.argv[1]).read().decode(), end="")' \
    "$address/notes"

say '6. What is it waiting for?'
show ./dayfly why notes-demo

say '7. Delete the sandbox: first the fork stops, then the delete step runs.'
show ./dayfly sandbox delete notes-demo
show ./dayfly logs notes-demo db drop

say '8. A pool creates a database before a sandbox needs it.'
show ./dayfly apply -f "$example/pool" --set "folder=$databases"

say '9. Two more sandboxes: one creates its database, the other takes the ready one.'
printf '$ python3 %s/pool/compare.py\n' "$example"
.venv/bin/python "$example/pool/compare.py" "$databases"
show ./dayfly pool delete notes

say '10. Is anything left?'
show ls -A "$databases"
if [ -n "$(ls -A "$databases")" ]; then
    echo 'There is: a database was not removed.'
    exit 1
fi
echo 'Nothing: all databases are gone.'

say 'See it live, in a browser: make page && ./dayfly up --detach && ./dayfly page'
