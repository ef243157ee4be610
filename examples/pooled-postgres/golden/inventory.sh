#!/bin/sh
# Prints a JSON line for each template, with DAYFLY_RESOURCE_ID only of that resource.
set -eu
ID="${DAYFLY_RESOURCE_ID:-}"
export ID

psql --no-psqlrc --quiet --set ON_ERROR_STOP=1 --tuples-only --no-align <<'SQL'
\set id `printf %s "$ID"`
WITH thing AS (
    SELECT datname AS name FROM pg_database
    WHERE datname ~ '^(golden|build)_[0-9a-f]{26}$' AND :'id' IN ('', right(datname, 26))
), line AS (
    SELECT 1 AS part, json_build_object('id', right(name, 26), 'name', name)::text AS text FROM thing
    UNION ALL SELECT 2, json_build_object('complete', true, 'count', count(*))::text FROM thing
)
SELECT text FROM line ORDER BY part;
SQL
