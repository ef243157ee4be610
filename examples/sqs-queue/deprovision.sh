#!/bin/sh
# An empty URL proves nothing: the queue may still exist. So this queries it by its name.
set -eu
# There is no queue in a region that `provision` refuses, and perhaps no server there to confirm it.
case $AWS_DEFAULT_REGION in
    eu-central-1 | eu-west-1 | us-east-1) ;;
    *) echo "no queue was made"; exit ;;
esac
# Version 1 of the AWS CLI ignores AWS_ENDPOINT_URL and would always send requests to Amazon.
sqs() { aws ${AWS_ENDPOINT_URL_SQS:+--endpoint-url "$AWS_ENDPOINT_URL_SQS"} sqs "$@"; }
name="dayfly-$DAYFLY_RESOURCE_ID"
url=$QUEUE_URL
if [ -z "$url" ] && ! url=$(sqs get-queue-url --queue-name "$name" --output text --query QueueUrl 2>&1); then
    said=$url
else
    if said=$(sqs delete-queue --queue-url "$url" 2>&1); then
        echo "queue $name is deleted"
        exit
    fi
fi
# Only the server's own "not found" proves that it is gone. The step is retried after any other failure.
case $said in
    *NonExistentQueue* | *QueueDoesNotExist*) echo "there is no queue $name" ;;
    *) echo "$said" >&2; exit 1 ;;
esac
