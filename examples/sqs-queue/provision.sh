#!/bin/sh
# Params reach the command as files. So the command either accepts them as JSON or refuses them.
set -eu
case $AWS_DEFAULT_REGION in
    eu-central-1 | eu-west-1 | us-east-1) ;;   # the regions that the platform team allows
    *) echo "the param region must be eu-central-1, eu-west-1 or us-east-1" >&2; exit 1 ;;
esac
# Version 1 of the AWS CLI ignores AWS_ENDPOINT_URL and would always send requests to Amazon.
sqs() { aws ${AWS_ENDPOINT_URL_SQS:+--endpoint-url "$AWS_ENDPOINT_URL_SQS"} sqs "$@"; }
name="dayfly-$DAYFLY_RESOURCE_ID"
set -- --queue-name "$name"
[ ! -s /tmp/in/attributes.json ] || set -- "$@" --attributes file:///tmp/in/attributes.json
[ ! -s /tmp/in/tags.json ] || set -- "$@" --tags file:///tmp/in/tags.json
url=$(sqs create-queue "$@" --output text --query QueueUrl)

printf %s "$name" >/tmp/queue-name
printf %s "$url" >/tmp/queue-url
echo "made queue $name"
