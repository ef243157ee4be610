#!/bin/sh
# Uploads the sandbox's files below a prefix with the sandbox's name.
set -eu
prefix="sandboxes/$DAYFLY_SANDBOX_NAME/"
aws s3 cp --no-progress --recursive /tmp/files "s3://$BUCKET/$prefix"
printf %s "$prefix" >/tmp/prefix
