#!/bin/sh
# A database cannot be made within a transaction, so this can end half-way: `drop` removes whatever is there. The lock by
# the resource's name is held until the session ends, and `drop` takes it as well: a client that is killed may leave a
# server process behind that still works.
set -eu
umask 077
NAME="dayfly_$DAYFLY_RESOURCE_ID"
PASSWORD=$(od -An -N24 -tx1 /dev/urandom | tr -d ' \n')
export NAME PASSWORD   # for the backquotes below; an argument of psql could be read by every user of the machine

psql --no-psqlrc --quiet --set ON_ERROR_STOP=1 --output /dev/null <<'SQL'
\set name `printf %s "$NAME"`
\set password `printf %s "$PASSWORD"`
SELECT pg_advisory_lock(hashtextextended(:'name', 0));
CREATE ROLE :"name" LOGIN PASSWORD :'password' CONNECTION LIMIT 20;   -- so that one sandbox leaves others some
GRANT :"name" TO CURRENT_USER;   -- so that an administrator who is no superuser may hand the database over, and drop it
CREATE DATABASE :"name" OWNER :"name";
REVOKE ALL ON DATABASE :"name" FROM PUBLIC;
SQL

printf %s "$NAME" >/tmp/database
printf %s "$PASSWORD" >/tmp/password
printf %s "postgresql://$NAME:$PASSWORD@$PGHOST:$PGPORT/$NAME" >/tmp/url
echo "made database and role $NAME"
