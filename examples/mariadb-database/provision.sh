#!/bin/sh
# MariaDB creates users and databases one by one, so this may stop half-way; `drop` removes what exists. This session holds
# a lock with the resource's name until it ends, and `drop` takes the same lock.
set -eu
umask 077
NAME="dayfly$DAYFLY_RESOURCE_ID"
PASSWORD=$(od -An -N24 -tx1 /dev/urandom | tr -d ' \n')

# Only letters and digits: they need no quoting, and `_` is a wildcard for GRANT. MYSQL_PWD is the client's own variable for the password.
mariadb --no-defaults --batch --skip-column-names \
    --host="$MARIADB_HOST" --port="$MARIADB_PORT" --protocol=tcp --user="$MARIADB_USER" >/dev/null <<SQL
SELECT GET_LOCK('$NAME', 0);
CREATE USER '$NAME'@'%' IDENTIFIED BY '$PASSWORD' WITH MAX_USER_CONNECTIONS 20;
CREATE DATABASE \`$NAME\` CHARACTER SET utf8mb4;
GRANT ALL PRIVILEGES ON \`$NAME\`.* TO '$NAME'@'%';
SQL

printf %s "$NAME" >/tmp/database
printf %s "$PASSWORD" >/tmp/password
echo "made database and user $NAME"
