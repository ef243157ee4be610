#!/bin/sh
# Runs the product team's SQL in the new database, in one transaction.
set -eu
psql --no-psqlrc --quiet --set ON_ERROR_STOP=1 --single-transaction --file /tmp/in/schema.sql

psql --no-psqlrc --tuples-only --no-align \
    --command "SELECT string_agg(tablename, ',' ORDER BY tablename) FROM pg_tables WHERE schemaname = 'public'" |
    tr -d '\n' >/tmp/tables
echo "tables: $(cat /tmp/tables)"
