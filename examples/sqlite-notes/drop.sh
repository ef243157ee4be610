#!/bin/sh
# Removes the database. It needs no output of `provision`, because the file's name is derived from the resource's id. So it
# works whether that step finished, failed or never ran, and may run repeatedly.
set -eu
[ -d "$FOLDER" ] || exit 0  # an invalid folder contains no database
database="$FOLDER/$DAYFLY_RESOURCE_ID.db"
rm -f -- "$database" "$database-journal"
echo "removed $database"
