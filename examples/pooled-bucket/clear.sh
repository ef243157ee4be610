#!/bin/sh
# Removes the sandbox's files. Without a pool, `deprovision` runs at the same time and may have removed the bucket.
set -eu
# There is no bucket in a region that `provision` refuses, and perhaps no server there to confirm it.
case $AWS_DEFAULT_REGION in
    eu-central-1 | eu-west-1 | us-east-1) ;;
    *) echo "no bucket was made"; exit ;;
esac
# A leak check deletes without a sandbox. Then `deprovision` removes all files.
[ -n "${DAYFLY_SANDBOX_NAME:-}" ] || exit 0
bucket="${BUCKET:-dayfly-$DAYFLY_RESOURCE_ID}"
prefix="${PREFIX:-sandboxes/$DAYFLY_SANDBOX_NAME/}"
if answer=$(aws s3api head-bucket --bucket "$bucket" 2>&1); then
    aws s3 rm --recursive "s3://$bucket/$prefix"
    exit
fi
# Only the server's own "not found" proves that it is gone. The step is retried after any other failure.
case $answer in
    *'(404)'*) echo "there is no bucket $bucket" ;;
    *) echo "$answer" >&2; exit 1 ;;
esac
