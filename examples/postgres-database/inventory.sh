#!/bin/sh
# Prints a JSON line for each database and role, with DAYFLY_RESOURCE_ID only of that resource. One
# query prints the last line as well, so a list that is cut off never looks complete.
set -eu
ID="${DAYFLY_RESOURCE_ID:-}"
export ID

psql --no-psqlrc --quiet --set ON_ERROR_STOP=1 --tuples-only --no-align <<'SQL'
\set id `printf %s "$ID"`
WITH thing AS (
    SELECT right(name, 26) AS id, kind || ' ' || name AS name
    FROM (SELECT 'database', datname FROM pg_database UNION ALL SELECT 'role', rolname FROM pg_roles) AS each(kind, name)
    WHERE name ~ '^dayfly_[0-9a-f]{26}$' AND :'id' IN ('', right(name, 26))
), line AS (
    SELECT 1 AS part, json_build_object('id', id, 'name', name)::text AS text FROM thing
    UNION ALL SELECT 2, json_build_object('complete', true, 'count', count(*))::text FROM thing
)
SELECT text FROM line ORDER BY part;
SQL
