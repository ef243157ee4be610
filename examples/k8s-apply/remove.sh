
# Without kinds `check` has failed, so `apply` never began. Otherwise all objects with the label are deleted, even after an
# incomplete `apply`. Objects that still exist after eight minutes are named, and the step is retried.
if [ -z "$KINDS" ]; then
    echo "nothing was made"
    exit
fi
kubectl delete --namespace "$namespace" --selector "$mark" --ignore-not-found --timeout=8m "$KINDS"
