#!/bin/sh
# Removes database and user if they exist, by the name derived from the resource's id.
set -eu
NAME="dayfly$DAYFLY_RESOURCE_ID"

mariadb --no-defaults --batch --skip-column-names \
    --host="$MARIADB_HOST" --port="$MARIADB_PORT" --protocol=tcp --user="$MARIADB_USER" <<SQL
DELIMITER //
-- An interrupted creation may still run in the server: wait for its end.
IF GET_LOCK('$NAME', 240) IS NOT TRUE THEN
    SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'provision still works; this is tried again';
END IF //
DELIMITER ;
ALTER USER IF EXISTS '$NAME'@'%' ACCOUNT LOCK;   -- prevents new sessions, then existing ones are ended
KILL USER '$NAME';
DROP DATABASE IF EXISTS \`$NAME\`;
DROP USER IF EXISTS '$NAME'@'%';
SQL
echo "database and user $NAME are gone"
