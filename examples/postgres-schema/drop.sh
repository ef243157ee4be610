#!/bin/sh
# Removes the role with everything it owns. It needs no output of `provision`, because the name is derived from the
# resource's id. It may run repeatedly, and also if nothing was created.
set -eu
NAME="dayfly_$DAYFLY_RESOURCE_ID"
export NAME

psql --no-psqlrc --quiet --set ON_ERROR_STOP=1 --output /dev/null <<'SQL'
\set name `printf %s "$NAME"`
-- An interrupted creation may still run in the server: wait for its end.
SELECT pg_advisory_lock(hashtextextended(:'name', 0));
SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = :'name') AS there \gset
\if :there
  ALTER ROLE :"name" NOLOGIN;
  SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = :'name';
  DROP OWNED BY :"name" CASCADE;
  DROP ROLE :"name";
\endif
SQL
echo "role and schema $NAME are gone"
