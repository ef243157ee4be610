#!/bin/sh
# A database cannot be created in a transaction, so this may stop half-way; `drop` removes what exists. This session holds a
# lock with the resource's name until it ends, and `drop` takes the same lock, because the server process of a killed client
# may still be running.
set -eu
umask 077
NAME="dayfly_$DAYFLY_RESOURCE_ID"
PASSWORD=$(od -An -N24 -tx1 /dev/urandom | tr -d ' \n')
export NAME PASSWORD   # for the backquotes below; every user of the machine could read an argument of psql

psql --no-psqlrc --quiet --set ON_ERROR_STOP=1 --output /dev/null <<'SQL'
\set name `printf %s "$NAME"`
\set password `printf %s "$PASSWORD"`
SELECT pg_advisory_lock(hashtextextended(:'name', 0));
CREATE ROLE :"name" LOGIN PASSWORD :'password' CONNECTION LIMIT 20;   -- so that one sandbox does not use all
GRANT :"name" TO CURRENT_USER;   -- an administrator without superuser rights needs this to transfer and drop the database
CREATE DATABASE :"name" OWNER :"name";
REVOKE ALL ON DATABASE :"name" FROM PUBLIC;
SQL

printf %s "$NAME" >/tmp/database
printf %s "$PASSWORD" >/tmp/password
printf %s "postgresql://$NAME:$PASSWORD@$PGHOST:$PGPORT/$NAME" >/tmp/url
echo "made database and role $NAME"
