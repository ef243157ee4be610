#!/bin/sh
# Builds the template under a private name, and renames it when it is complete. So an interrupted build never looks ready.
# The template accepts no connections, because PostgreSQL copies no database that has some.
set -eu
NAME="golden_$DAYFLY_RESOURCE_ID"
BUILD="build_$DAYFLY_RESOURCE_ID"
export NAME BUILD

psql --no-psqlrc --quiet --set ON_ERROR_STOP=1 --output /dev/null <<'SQL'
\set build `printf %s "$BUILD"`
CREATE DATABASE :"build";
REVOKE ALL ON DATABASE :"build" FROM PUBLIC;
SQL
PGDATABASE="$BUILD" psql --no-psqlrc --quiet --set ON_ERROR_STOP=1 --single-transaction --file /tmp/in/golden.sql
TABLES=$(PGDATABASE="$BUILD" psql --no-psqlrc --tuples-only --no-align \
    --command "SELECT count(*) FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')")
if [ "$TABLES" = 0 ]; then
    echo "the SQL has created no table; correct the param sql" >&2
    exit 1
fi
psql --no-psqlrc --quiet --set ON_ERROR_STOP=1 --output /dev/null <<'SQL'
\set build `printf %s "$BUILD"`
\set name `printf %s "$NAME"`
ALTER DATABASE :"build" RENAME TO :"name";
ALTER DATABASE :"name" WITH IS_TEMPLATE true ALLOW_CONNECTIONS false;
SQL
printf %s "$NAME" >/tmp/database
echo "built $NAME with $TABLES tables"
