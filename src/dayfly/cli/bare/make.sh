#!/bin/sh
# Runs at most once. It names what it makes by the resource's id, so that remove.sh finds it even if this is cut short.
set -eu
mkdir "$ROOT/$DAYFLY_RESOURCE_ID"
printf %s "$ROOT/$DAYFLY_RESOURCE_ID" >/tmp/path
