
# `create`, not `apply`: an object that is there already is somebody else's. What was made before such a failure bears
# the mark, and `remove` finds it by that.
kubectl label --local --overwrite -f /tmp/in/manifests.yaml -o json "$mark" >marked.json
kubectl create --namespace "$namespace" -f marked.json -o name >/tmp/objects
echo "made:"
cat /tmp/objects
