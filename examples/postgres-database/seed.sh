#!/bin/sh
# Fills the tables in one transaction. Without the param it does nothing.
set -eu
psql --no-psqlrc --quiet --set ON_ERROR_STOP=1 --single-transaction --file /tmp/in/seed.sql
echo "filled $TABLES"
