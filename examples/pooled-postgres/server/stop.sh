#!/bin/sh
# Removes the container and its data. It may run repeatedly, and also if nothing was created.
set -eu
FOUND=$(docker ps --all --quiet --filter "label=dayfly.resource=$DAYFLY_RESOURCE_ID")
for CONTAINER in $FOUND; do
    docker rm --force --volumes "$CONTAINER" >/dev/null
done
echo "the server of $DAYFLY_RESOURCE_ID is gone"
