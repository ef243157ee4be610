#!/bin/sh
# Runs the product team's SQL. MariaDB commits at each CREATE, so a failure leaves a part of it. The step then fails too,
# and the whole database is removed when the sandbox is deleted.
set -eu
client() {
    mariadb --no-defaults --batch --skip-column-names --default-character-set=utf8mb4 \
        --host="$MARIADB_HOST" --port="$MARIADB_PORT" --protocol=tcp --user="$MARIADB_USER" "$MARIADB_USER"
}
client </tmp/in/seed.sql
echo 'SELECT count(*) FROM information_schema.tables WHERE table_schema = database()' | client | tr -d '\n' >/tmp/tables
echo "$(cat /tmp/tables) tables are there"
