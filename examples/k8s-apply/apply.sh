
# First a dry run of all manifests: if the server would refuse one object, none is created. kubectl refuses an object for
# another namespace.
kubectl create --namespace "$namespace" --dry-run=server -f /tmp/in/manifests.yaml -o name >/tmp/objects
# Then a ConfigMap that owns the objects. The cluster deletes them with it, also late ones.
owner="dayfly-$DAYFLY_RESOURCE_ID"
kubectl create configmap "$owner" --dry-run=client --from-file=/tmp/objects -o json >owner.json
kubectl label --local -f owner.json "dayfly-resource=$DAYFLY_RESOURCE_ID" -o json >marked.json
uid=$(kubectl create --namespace "$namespace" -f marked.json -o 'jsonpath={.metadata.uid}')
cat >patch.json <<END
{"metadata": {"ownerReferences": [
  {"apiVersion": "v1", "kind": "ConfigMap", "name": "$owner", "uid": "$uid", "blockOwnerDeletion": true}
]}}
END
kubectl patch --local --type merge --patch-file patch.json -f /tmp/in/manifests.yaml -o json >owned.json
# `create`, not `apply`: an existing object belongs to another owner and stays unchanged.
kubectl create --namespace "$namespace" -f owned.json -o name
