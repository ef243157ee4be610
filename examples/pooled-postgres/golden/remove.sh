#!/bin/sh
# Removes the template, complete or not. It may run repeatedly, and also if nothing was created.
set -eu
for NAME in "golden_$DAYFLY_RESOURCE_ID" "build_$DAYFLY_RESOURCE_ID"; do
    export NAME
    psql --no-psqlrc --quiet --set ON_ERROR_STOP=1 --output /dev/null <<'SQL'
\set name `printf %s "$NAME"`
SELECT EXISTS (SELECT FROM pg_database WHERE datname = :'name') AS there \gset
\if :there
  ALTER DATABASE :"name" WITH IS_TEMPLATE false;
  DROP DATABASE IF EXISTS :"name" WITH (FORCE);
\endif
SQL
done
echo "the template golden_$DAYFLY_RESOURCE_ID is gone"
