#!/bin/sh
# Prints a JSON line for each queue, with DAYFLY_RESOURCE_ID only of that resource. Without a page size
# the server returns only 1,000 queues and does not report that there are more.
set -eu
case $AWS_DEFAULT_REGION in
    eu-central-1 | eu-west-1 | us-east-1) ;;
    *) echo '{"complete": true, "count": 0}'; exit ;;   # `provision` refuses this region
esac
# Version 1 of the AWS CLI ignores AWS_ENDPOINT_URL and would always send requests to Amazon.
found=$(aws ${AWS_ENDPOINT_URL_SQS:+--endpoint-url "$AWS_ENDPOINT_URL_SQS"} sqs list-queues \
    --queue-name-prefix "dayfly-${DAYFLY_RESOURCE_ID:-}" --page-size 1000 --output text --query 'QueueUrls[].[@]')
printf '%s\n' "$found" | awk -F/ '
    $NF ~ /^dayfly-[0-9a-f]+$/ && length($NF) == 33 {
        printf "{\"id\": \"%s\", \"name\": \"%s\"}\n", substr($NF, 8), $NF; count++
    }
    END { printf "{\"complete\": true, \"count\": %d}\n", count }'
