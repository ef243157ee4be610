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
namespace=${DAYFLY_SANDBOX_NAMESPACE:?there is no namespace: this plugin is for clusters}
mark="dayfly-resource=$DAYFLY_RESOURCE_ID"
