#!/bin/sh
# Prints a JSON line for each server, with DAYFLY_RESOURCE_ID only of that resource.
set -eu
ID="${DAYFLY_RESOURCE_ID:-}"
LABEL="dayfly.resource${ID:+=$ID}"
FOUND=$(docker ps --all --filter "label=$LABEL" --format '{{.Label "dayfly.resource"}} {{.Names}}')
echo "$FOUND" | while read -r RESOURCE NAME; do
    [ -z "$RESOURCE" ] || printf '{"id": "%s", "name": "%s"}\n' "$RESOURCE" "$NAME"
done
printf '{"complete": true, "count": %s}\n' "$(printf %s "$FOUND" | grep -c .)"
