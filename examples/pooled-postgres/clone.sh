#!/bin/sh
# Copies the template. FILE_COPY copies files instead of logging each block, which is faster for large templates.
set -eu
NAME="dayfly_$DAYFLY_RESOURCE_ID"
export NAME

psql --no-psqlrc --quiet --set ON_ERROR_STOP=1 --output /dev/null <<'SQL'
\set name `printf %s "$NAME"`
\set template `printf %s "$TEMPLATE"`
SELECT pg_advisory_lock(hashtextextended(:'name', 0));
CREATE DATABASE :"name" TEMPLATE :"template" STRATEGY FILE_COPY;
REVOKE ALL ON DATABASE :"name" FROM PUBLIC;
SQL
printf %s "$NAME" >/tmp/copy
echo "copied $TEMPLATE to $NAME"
