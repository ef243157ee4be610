#!/bin/sh
# Is retried until it succeeds, also if make.sh failed or never ran. A missing folder counts as removed.
set -eu
[ -d "$ROOT" ] || exit 0   # a missing root contains nothing
rm -rf -- "$ROOT/$DAYFLY_RESOURCE_ID"
