
# `create`, not `apply`: an existing object belongs to another owner. Objects created before such a failure have the
# label, and `remove` finds them by it.
kubectl label --local --overwrite -f /tmp/in/manifests.yaml -o json "$mark" >marked.json
kubectl create --namespace "$namespace" -f marked.json -o name >/tmp/objects
echo "made:"
cat /tmp/objects
