#!/bin/sh
# Removes database and role, whichever of them is there. Nothing of `provision` is read: the name follows from the
# resource's id. Repeating this does no harm, nor does running it when nothing was ever made.
set -eu
NAME="dayfly_$DAYFLY_RESOURCE_ID"
export NAME

psql --no-psqlrc --quiet --set ON_ERROR_STOP=1 --output /dev/null <<'SQL'
\set name `printf %s "$NAME"`
-- A creation that was cut off may still be on its way through the server: wait for its end.
SELECT pg_advisory_lock(hashtextextended(:'name', 0));
SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = :'name') AS there \gset
\if :there
  ALTER ROLE :"name" NOLOGIN;
  SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = :'name';
\endif
DROP DATABASE IF EXISTS :"name" WITH (FORCE);
\if :there
  DROP OWNED BY :"name" CASCADE;   -- what it was granted elsewhere
  DROP ROLE :"name";
\endif
SQL
echo "database and role $NAME are gone"
