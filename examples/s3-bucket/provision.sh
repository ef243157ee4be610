#!/bin/sh
# The name is as good as random, and yet `deprovision` can work it out if this step never gets to report it.
set -eu
case $AWS_DEFAULT_REGION in
    eu-central-1 | eu-west-1 | us-east-1) ;;   # which the platform pays for
    *) echo "the param region must be eu-central-1, eu-west-1 or us-east-1" >&2; exit 1 ;;
esac
bucket="dayfly-$DAYFLY_RESOURCE_ID"
# Amazon's oldest region is the default and must not be named.
case $AWS_DEFAULT_REGION in
    us-east-1) aws s3api create-bucket --bucket "$bucket" ;;
    *) aws s3api create-bucket --bucket "$bucket" \
        --create-bucket-configuration "LocationConstraint=$AWS_DEFAULT_REGION" ;;
esac
printf %s "$bucket" >/tmp/bucket
