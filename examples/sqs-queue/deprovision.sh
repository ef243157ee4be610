#!/bin/sh
# An empty URL says nothing: the queue may be there all the same. So it is asked for by its name.
set -eu
# A region that `provision` refuses has none of ours, and perhaps no server that could say so.
case $AWS_DEFAULT_REGION in
    eu-central-1 | eu-west-1 | us-east-1) ;;
    *) echo "no queue was made"; exit ;;
esac
# Version 1 of the command would ask Amazon whatever the variable says.
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
# Only the server's own "not found" proves that it is gone; any other failure is tried again.
case $said in
    *NonExistentQueue* | *QueueDoesNotExist*) echo "there is no queue $name" ;;
    *) echo "$said" >&2; exit 1 ;;
esac
