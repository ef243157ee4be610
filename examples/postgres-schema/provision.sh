#!/bin/sh
# One transaction makes all of it or nothing. It holds a lock by the resource's name, which `drop` takes as well: a
# client that is killed may leave a server process behind that still commits, and `drop` then waits for it.
set -eu
umask 077
NAME="dayfly_$DAYFLY_RESOURCE_ID"
PASSWORD=$(od -An -N24 -tx1 /dev/urandom | tr -d ' \n')
export NAME PASSWORD   # for the backquotes below; an argument of psql could be read by every user of the machine

psql --no-psqlrc --quiet --set ON_ERROR_STOP=1 --output /dev/null <<'SQL'
\set name `printf %s "$NAME"`
\set password `printf %s "$PASSWORD"`
BEGIN;
SELECT pg_advisory_xact_lock(hashtextextended(:'name', 0));
CREATE ROLE :"name" LOGIN PASSWORD :'password';
GRANT :"name" TO CURRENT_USER;   -- so that an administrator who is no superuser may hand the schema over, and drop it
CREATE SCHEMA :"name" AUTHORIZATION :"name";
ALTER ROLE :"name" SET search_path TO :"name";
COMMIT;
SQL

printf %s "$NAME" >/tmp/schema
printf %s "$PASSWORD" >/tmp/password
printf %s "postgresql://$NAME:$PASSWORD@$PGHOST:$PGPORT/$PGDATABASE" >/tmp/url
echo "made role and schema $NAME"
