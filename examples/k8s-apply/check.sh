
# Sends all manifests to the server as a dry run. kubectl refuses an object for another namespace.
kubectl label --local --overwrite -f /tmp/in/manifests.yaml -o json "$mark" >marked.json
kubectl create --namespace "$namespace" --dry-run=server -f marked.json -o name >objects
cut -d / -f 1 objects | sort -u | paste -s -d , | tr -d '\n' >/tmp/kinds
echo "would make:"
cat objects
