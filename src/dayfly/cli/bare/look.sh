#!/bin/sh
# Prints a line for each thing that is there of the resource.
set -eu
[ -d "$ROOT" ] || exit 0
find "$ROOT" -maxdepth 1 -name "*$DAYFLY_RESOURCE_ID*"
