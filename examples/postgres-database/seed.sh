#!/bin/sh
# Fills the tables, all of them or none. Without the param there is nothing to run.
set -eu
psql --no-psqlrc --quiet --set ON_ERROR_STOP=1 --single-transaction --file /tmp/in/seed.sql
echo "filled $TABLES"
