#!/bin/sh
# Runs until it has succeeded, also if make.sh failed or never ran: what is not there has been removed.
set -eu
rm -rf -- "$ROOT/$DAYFLY_RESOURCE_ID"
