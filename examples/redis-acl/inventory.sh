#!/bin/sh
# Prints a JSON line for each user, with DAYFLY_RESOURCE_ID only of that resource. The keys of a user
# have no separate lines, because a search for them would read all keys of the server.
set -eu
found=$(redis-cli -e --no-auth-warning -h "$REDIS_HOST" -p "$REDIS_PORT" --user "$REDIS_USER" ACL USERS)
printf '%s\n' "$found" | awk -v id="${DAYFLY_RESOURCE_ID:-}" '
    /^dayfly-[0-9a-f]+$/ && length == 33 && (id == "" || $0 == "dayfly-" id) {
        printf "{\"id\": \"%s\", \"name\": \"%s\"}\n", substr($0, 8), $0; count++
    }
    END { printf "{\"complete\": true, \"count\": %d}\n", count }'
