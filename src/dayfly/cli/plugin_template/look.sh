#!/bin/sh
# Prints a JSON line for each folder, with DAYFLY_RESOURCE_ID only of that resource. A failure of
# `ls` ends the script without the last line, so an incomplete list never looks complete.
set -eu
found=$([ ! -d "$ROOT" ] || ls -- "$ROOT")
printf '%s\n' "$found" | awk -v id="${DAYFLY_RESOURCE_ID:-}" '
    /^[0-9a-f]+$/ && length == 26 && (id == "" || id == $0) {
        printf "{\"id\": \"%s\", \"name\": \"%s\"}\n", $0, $0; count++
    }
    END { printf "{\"complete\": true, \"count\": %d}\n", count }'
