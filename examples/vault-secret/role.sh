#!/bin/sh
# A Vault role for this resource only, so that all its leases can be found by name and revoked. The sandbox's param only
# selects one of the texts below. It never becomes part of SQL.
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
