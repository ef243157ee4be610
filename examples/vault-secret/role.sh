#!/bin/sh
# A role of Vault for this resource alone: whatever is leased by it can be found by its name and taken back.
# What the sandbox says chooses among what is written here. It is never a part of SQL.
set -eu
name="dayfly-$DAYFLY_RESOURCE_ID"
case $ACCESS in
    read) group=shop_reader ;;
    write) group=shop_writer ;;
    *) echo "the param access must be read or write" >&2; exit 1 ;;
esac
bao write "database/roles/$name" db_name=shop default_ttl=24h max_ttl=168h creation_statements="
    CREATE ROLE \"{{name}}\" LOGIN PASSWORD '{{password}}' VALID UNTIL '{{expiration}}' IN ROLE $group"
printf %s "$name" >/tmp/name
