#!/bin/sh
# Check the plugin, create the resource, use it, delete it, and check that nothing is left.
set -eu
cd "$(dirname -- "$0")"
root=$(mktemp -d)
trap 'rm -rf -- "$root"' EXIT

dayfly plugin lint .
dayfly plan -f . --set "root=$root"
dayfly with -f plugin.yaml -p "root=$root" -e THING=make.path -- sh -c 'test -d "$THING"'

left=$(ls -A -- "$root")
[ -z "$left" ] || { echo "left over: $left" >&2; exit 1; }
echo 'created, used and removed; nothing is left'
