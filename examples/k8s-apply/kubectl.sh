#!/bin/sh
# The beginning of each step: kubectl uses the plugin's account, and only the namespace of the sandbox.
set -eu
case $KUBERNETES_SERVICE_HOST in
    *:*) server="https://[$KUBERNETES_SERVICE_HOST]:$KUBERNETES_SERVICE_PORT" ;;
    *) server="https://$KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT" ;;
esac
export HOME="$PWD" KUBECONFIG="$PWD/kubeconfig"
cat >"$KUBECONFIG" <<END
apiVersion: v1
kind: Config
clusters: [{name: here, cluster: {server: "$server", certificate-authority: /account/ca.crt}}]
users: [{name: plugin, user: {tokenFile: /account/token}}]
contexts: [{name: here, context: {cluster: here, user: plugin}}]
current-context: here
END
# A leak check has no sandbox, and names the namespace in a param. A sandbox's own param has no effect.
namespace=${DAYFLY_SANDBOX_NAMESPACE-${NAMESPACE:-}}
if [ -z "$namespace" ]; then
    echo "there is no namespace: this plugin is for clusters; a leak check needs the param namespace" >&2
    exit 1
fi
