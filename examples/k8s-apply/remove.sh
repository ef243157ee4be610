
# Without kinds `check` has not passed, so `apply` never began and nothing was made. Otherwise everything goes that bears
# the mark, however far `apply` came. What does not go within eight minutes is named, and tried again.
if [ -z "$KINDS" ]; then
    echo "nothing was made"
    exit
fi
kubectl delete --namespace "$namespace" --selector "$mark" --ignore-not-found --timeout=8m "$KINDS"
