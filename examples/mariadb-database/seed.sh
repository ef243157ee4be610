#!/bin/sh
# Runs the product team's SQL. MariaDB ends a transaction with each CREATE, so what fails half-way stays half-way: the
# step fails with it, and the whole database goes when the sandbox is deleted.
set -eu
client() {
    mariadb --no-defaults --batch --skip-column-names --default-character-set=utf8mb4 \
        --host="$MARIADB_HOST" --port="$MARIADB_PORT" --protocol=tcp --user="$MARIADB_USER" "$MARIADB_USER"
}
client </tmp/in/seed.sql
echo 'SELECT count(*) FROM information_schema.tables WHERE table_schema = database()' | client | tr -d '\n' >/tmp/tables
echo "$(cat /tmp/tables) tables are there"
