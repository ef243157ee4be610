#!/bin/sh
# Print a line for each thing that exists for the resource.
set -eu
[ -d "$ROOT" ] || exit 0
find "$ROOT" -maxdepth 1 -name "*$DAYFLY_RESOURCE_ID*"
