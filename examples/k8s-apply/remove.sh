
# Deletes the ConfigMap and, before it, all objects that it owns. Without it, `apply` has created nothing. If objects still
# exist after eight minutes, the step fails and is retried.
owner="dayfly-$DAYFLY_RESOURCE_ID"
if ! kubectl delete configmap "$owner" --namespace "$namespace" --cascade=foreground --ignore-not-found --timeout=8m; then
    echo "some of these objects may still exist in $namespace:" >&2
    kubectl get configmap "$owner" --namespace "$namespace" -o 'jsonpath={.data.objects}' >&2
    exit 1
fi
