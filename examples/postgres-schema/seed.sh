#!/bin/sh
# Runs the product team's SQL in the new schema (the role's search path), in one transaction.
set -eu
psql --no-psqlrc --quiet --set ON_ERROR_STOP=1 --single-transaction --file /tmp/in/seed.sql

psql --no-psqlrc --tuples-only --no-align \
    --command 'SELECT count(*) FROM pg_tables WHERE schemaname = current_schema()' | tr -d '\n' >/tmp/tables
echo "$(cat /tmp/tables) tables are there"
