#!/bin/sh
# One-time preparation by an administrator: two groups in PostgreSQL, and a Vault that may create users in them. It needs
# BAO_ADDR, BAO_TOKEN and psql's PG* variables of a user who may create roles. This demo gives that user to Vault. In
# production, use a separate user, and change its password with `bao write -force database/rotate-root/shop`.
set -eu
psql --no-psqlrc --quiet --set ON_ERROR_STOP=1 <<'SQL'
SELECT 'CREATE ROLE ' || name FROM unnest(ARRAY['shop_reader', 'shop_writer']) AS name
    WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = name) \gexec
GRANT pg_read_all_data TO shop_reader;
GRANT pg_read_all_data, pg_write_all_data TO shop_writer;
SQL
bao secrets list | grep -q '^database/' || bao secrets enable database
printf %s "$PGPASSWORD" | bao write database/config/shop plugin_name=postgresql-database-plugin allowed_roles='dayfly-*' \
    connection_url="postgresql://{{username}}:{{password}}@$PGHOST:$PGPORT/$PGDATABASE" username="$PGUSER" password=-
