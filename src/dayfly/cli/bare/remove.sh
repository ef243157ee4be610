#!/bin/sh
# Runs until it has succeeded, also if make.sh failed or never ran: what is not there has been removed.
set -eu
[ -d "$ROOT" ] || exit 0   # whoever named a root that is none has nothing there
rm -rf -- "$ROOT/$DAYFLY_RESOURCE_ID"
