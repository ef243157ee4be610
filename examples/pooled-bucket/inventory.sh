#!/bin/sh
# Prints a JSON line for each bucket of the account, with DAYFLY_RESOURCE_ID only of that resource.
# The AWS CLI reads all pages of the list, and fails if it cannot read one of them.
set -eu
found=$(aws s3api list-buckets --output text --query 'Buckets[].[Name, CreationDate]')
printf '%s\n' "$found" | awk -v id="${DAYFLY_RESOURCE_ID:-}" '
    $1 ~ /^dayfly-[0-9a-f]+$/ && length($1) == 33 && (id == "" || $1 == "dayfly-" id) {
        printf "{\"id\": \"%s\", \"name\": \"%s\", \"created\": \"%s\"}\n", substr($1, 8), $1, $2; count++
    }
    END { printf "{\"complete\": true, \"count\": %d}\n", count }'
