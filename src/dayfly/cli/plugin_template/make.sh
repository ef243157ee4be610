#!/bin/sh
# Runs at most once. The folder has the resource's ID in its name, so that remove.sh finds it even after an interruption.
set -eu
mkdir "$ROOT/$DAYFLY_RESOURCE_ID"
printf %s "$ROOT/$DAYFLY_RESOURCE_ID" >/tmp/path
