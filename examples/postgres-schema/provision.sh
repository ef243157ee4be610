#!/bin/sh
# One transaction creates everything. It holds a lock with the resource's name, which `drop` also takes. If the client is
# killed, its server process may still commit, and `drop` waits for it.
set -eu
umask 077
NAME="dayfly_$DAYFLY_RESOURCE_ID"
PASSWORD=$(od -An -N24 -tx1 /dev/urandom | tr -d ' \n')
export NAME PASSWORD   # for the backquotes below; every user of the machine could read an argument of psql

psql --no-psqlrc --quiet --set ON_ERROR_STOP=1 --output /dev/null <<'SQL'
\set name `printf %s "$NAME"`
\set password `printf %s "$PASSWORD"`
BEGIN;
SELECT pg_advisory_xact_lock(hashtextextended(:'name', 0));
CREATE ROLE :"name" LOGIN PASSWORD :'password';
GRANT :"name" TO CURRENT_USER;   -- an administrator without superuser rights needs this to transfer and drop the schema
CREATE SCHEMA :"name" AUTHORIZATION :"name";
ALTER ROLE :"name" SET search_path TO :"name";
COMMIT;
SQL

printf %s "$NAME" >/tmp/schema
printf %s "$PASSWORD" >/tmp/password
printf %s "postgresql://$NAME:$PASSWORD@$PGHOST:$PGPORT/$PGDATABASE" >/tmp/url
echo "made role and schema $NAME"
