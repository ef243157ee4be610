#!/bin/sh
# Empties and removes the bucket. If `provision` was interrupted, BUCKET is empty although the bucket may exist.
set -eu
# There is no bucket in a region that `provision` refuses, and perhaps no server there to confirm it.
case $AWS_DEFAULT_REGION in
    eu-central-1 | eu-west-1 | us-east-1) ;;
    *) echo "no bucket was made"; exit ;;
esac
bucket="${BUCKET:-dayfly-$DAYFLY_RESOURCE_ID}"
if answer=$(aws s3api head-bucket --bucket "$bucket" 2>&1); then
    aws s3 rb --force "s3://$bucket"
    exit
fi
# Only the server's own "not found" proves that it is gone. The step is retried after any other failure.
case $answer in
    *'(404)'*) echo "there is no bucket $bucket" ;;
    *) echo "$answer" >&2; exit 1 ;;
esac
