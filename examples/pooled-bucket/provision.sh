#!/bin/sh
# The name is unpredictable, yet `deprovision` can derive it if this step does not report it.
set -eu
case $AWS_DEFAULT_REGION in
    eu-central-1 | eu-west-1 | us-east-1) ;;   # the regions that the platform team allows
    *) echo "the param region must be eu-central-1, eu-west-1 or us-east-1" >&2; exit 1 ;;
esac
bucket="dayfly-$DAYFLY_RESOURCE_ID"
# Amazon's oldest region is the default and may not be specified.
case $AWS_DEFAULT_REGION in
    us-east-1) aws s3api create-bucket --bucket "$bucket" ;;
    *) aws s3api create-bucket --bucket "$bucket" \
        --create-bucket-configuration "LocationConstraint=$AWS_DEFAULT_REGION" ;;
esac
printf %s "$bucket" >/tmp/bucket
