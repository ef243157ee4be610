
# Prints a JSON line for each ConfigMap that owns objects, with DAYFLY_RESOURCE_ID only of that resource. The objects have no
# separate lines, because the cluster deletes them with their owner.
found=$(kubectl get configmaps --namespace "$namespace" --selector "dayfly-resource${DAYFLY_RESOURCE_ID:+=$DAYFLY_RESOURCE_ID}" \
    -o 'jsonpath={range .items[*]}{.metadata.name} {.metadata.creationTimestamp}{"\n"}{end}')
printf '%s\n' "$found" | awk '
    $1 ~ /^dayfly-[0-9a-f]+$/ && length($1) == 33 {
        printf "{\"id\": \"%s\", \"name\": \"%s\", \"created\": \"%s\"}\n", substr($1, 8), $1, $2; count++
    }
    END { printf "{\"complete\": true, \"count\": %d}\n", count }'
