#!/bin/sh
# Prints a JSON line for each role, with DAYFLY_RESOURCE_ID only of that resource. A role and its leases
# are removed together, so the leases have no separate lines.
set -eu
# Exit code 2 without a message of an error means that there is no role.
found=$(bao list -format=json database/roles 2>&1) || case $? in
    2) [ "$found" = "{}" ] || { echo "$found" >&2; exit 1; } ;;
    *) echo "$found" >&2; exit 1 ;;
esac
printf '%s\n' "$found" | awk -F'"' -v id="${DAYFLY_RESOURCE_ID:-}" '
    $2 ~ /^dayfly-[0-9a-f]+$/ && length($2) == 33 && (id == "" || $2 == "dayfly-" id) {
        printf "{\"id\": \"%s\", \"name\": \"%s\"}\n", substr($2, 8), $2; count++
    }
    END { printf "{\"complete\": true, \"count\": %d}\n", count }'
