#!/bin/sh
# Removes the database. It reads no output of `provision`: the file's name follows from the resource's id, so this
# works whether that step finished, failed half-way or never ran, and however often it is repeated.
set -eu
[ -d "$FOLDER" ] || exit 0  # whoever named a folder that is none has nothing there
database="$FOLDER/$DAYFLY_RESOURCE_ID.db"
rm -f -- "$database" "$database-journal"
echo "removed $database"
