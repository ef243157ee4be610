#!/bin/sh
# Prints a JSON line for each database, with DAYFLY_RESOURCE_ID only of that resource.
set -eu
found=$([ ! -d "$HOME/.cache/shop-db" ] || ls -- "$HOME/.cache/shop-db")
printf '%s\n' "$found" | awk -v id="${DAYFLY_RESOURCE_ID:-}" '
    /^[0-9a-f]+\.db(-journal)?$/ && (id == "" || id == substr($0, 1, 26)) {
        printf "{\"id\": \"%s\", \"name\": \"%s\"}\n", substr($0, 1, 26), $0; count++
    }
    END { printf "{\"complete\": true, \"count\": %d}\n", count }'
