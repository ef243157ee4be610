#!/bin/sh
# Removes the copy and its role if they exist. It may run repeatedly, and also if nothing was created. `grant` may have
# renamed the database, so the id at the end of its name identifies it.
set -eu
ROLE="dayfly_$DAYFLY_RESOURCE_ID"
export ROLE

psql --no-psqlrc --quiet --set ON_ERROR_STOP=1 --output /dev/null <<'SQL'
\set role `printf %s "$ROLE"`
\set id `printf %s "_$DAYFLY_RESOURCE_ID"`
-- An interrupted step may still run in the server: wait for its end.
SELECT pg_advisory_lock(hashtextextended(:'role', 0));
SELECT format('DROP DATABASE %I WITH (FORCE)', datname)
FROM pg_database WHERE right(datname, length(:'id')) = :'id' \gexec
DROP ROLE IF EXISTS :"role";
SQL
echo "the database of $ROLE is gone"
