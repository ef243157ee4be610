#!/bin/sh
# Prints a JSON line for each database and user, with DAYFLY_RESOURCE_ID only of that resource. One
# query prints the last line as well, so a list that is cut off never looks complete.
set -eu
case ${DAYFLY_RESOURCE_ID:-} in
    *[!0-9a-f]*) echo "DAYFLY_RESOURCE_ID is not an id" >&2; exit 1 ;;
esac
mariadb --no-defaults --batch --raw --skip-column-names \
    --host="$MARIADB_HOST" --port="$MARIADB_PORT" --protocol=tcp --user="$MARIADB_USER" <<SQL
WITH thing AS (
    SELECT right(name, 26) AS id, concat(kind, ' ', name) AS name
    FROM (
        SELECT 'database' AS kind, schema_name AS name FROM information_schema.schemata
        UNION ALL SELECT 'user', user FROM mysql.user
    ) AS each_one
    WHERE name REGEXP '^dayfly[0-9a-f]{26}\$' AND '${DAYFLY_RESOURCE_ID:-}' IN ('', right(name, 26))
)
SELECT text FROM (
    SELECT 1 AS part, json_object('id', id, 'name', name) AS text FROM thing
    UNION ALL SELECT 2, json_object('complete', true, 'count', count(*)) FROM thing
) AS line ORDER BY part;
SQL
