#!/bin/sh
# Removes database and role if they exist. It needs no output of `provision`, because the name is derived from the
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
\endif
DROP DATABASE IF EXISTS :"name" WITH (FORCE);
\if :there
  DROP OWNED BY :"name" CASCADE;   -- rights granted to it elsewhere
  DROP ROLE :"name";
\endif
SQL
echo "database and role $NAME are gone"
