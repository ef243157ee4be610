#!/bin/sh
# Names the copy after its sandbox, and creates a role that owns everything in it.
set -eu
umask 077
ROLE="dayfly_$DAYFLY_RESOURCE_ID"
NAME="${DAYFLY_SANDBOX_NAME}_$DAYFLY_RESOURCE_ID"
PASSWORD=$(od -An -N24 -tx1 /dev/urandom | tr -d ' \n')
export ROLE NAME PASSWORD   # for the backquotes below; every user of the machine could read an argument of psql

psql --no-psqlrc --quiet --set ON_ERROR_STOP=1 --output /dev/null <<'SQL'
\set role `printf %s "$ROLE"`
\set copy `printf %s "$COPY"`
\set name `printf %s "$NAME"`
\set password `printf %s "$PASSWORD"`
SELECT pg_advisory_lock(hashtextextended(:'role', 0));
CREATE ROLE :"role" LOGIN PASSWORD :'password' CONNECTION LIMIT 20;   -- so that one sandbox does not use all
GRANT :"role" TO CURRENT_USER;   -- an administrator without superuser rights needs this to transfer the database
ALTER DATABASE :"copy" RENAME TO :"name";
ALTER DATABASE :"name" OWNER TO :"role";
SQL
PGDATABASE="$NAME" psql --no-psqlrc --quiet --set ON_ERROR_STOP=1 --output /dev/null <<'SQL'
\set role `printf %s "$ROLE"`
GRANT ALL ON ALL TABLES IN SCHEMA public TO :"role";
GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO :"role";
GRANT ALL ON SCHEMA public TO :"role";
SQL

printf %s "$NAME" >/tmp/database
printf %s "postgresql://$ROLE:$PASSWORD@$PGHOST:$PGPORT/$NAME" >/tmp/url
echo "made the role $ROLE of $NAME"
