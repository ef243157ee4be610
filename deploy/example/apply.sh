#!/bin/sh
# Applies a PostgreSQL server, a plugin that creates databases in it, and a sandbox; waits until the sandbox is Ready.
#   deploy/example/apply.sh          requires kubectl, a cluster with Dayfly, and the image postgres:15
set -eu
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
kubectl=${KUBECTL:-kubectl}
present() { "$kubectl" get "$@" >/dev/null 2>&1; }

"$kubectl" apply -f "$here/database.yaml"
if ! present secret database -n notes; then
    od -An -N24 -tx1 /dev/urandom | tr -d ' \n' |
        "$kubectl" create secret generic database -n notes --from-file=password=/dev/stdin
fi
# Steps use the server's IP address, so the example also works in clusters without DNS.
host=$("$kubectl" get service database -n notes -o 'jsonpath={.spec.clusterIP}')
if ! present secret notes-database -n dayfly-runners; then
    "$kubectl" get secret database -n notes -o 'jsonpath={.data.password}' | base64 -d |
        "$kubectl" create secret generic notes-database -n dayfly-runners \
            --from-literal=host="$host" --from-literal=user=postgres --from-file=password=/dev/stdin
fi
# Only steps of this plugin may read the Secret; other plugins and other Secrets of the namespace stay separate.
"$kubectl" annotate --overwrite secret notes-database -n dayfly-runners dayfly.dev/plugins=cluster:postgres-notes
# The sandbox's namespace gets a Secret with the outputs: its administrator allows the operator to write it.
present rolebinding dayfly-forks -n notes || "$kubectl" create rolebinding dayfly-forks -n notes \
    --clusterrole=dayfly-forks --serviceaccount=dayfly-system:dayfly-operator
"$kubectl" rollout status deployment/database -n notes --timeout=180s
"$kubectl" apply -f "$here/plugin.yaml" -f "$here/sandbox.yaml"
if ! "$kubectl" wait --for=condition=Ready sandbox.dayfly.dev/notes-demo -n notes --timeout=180s; then
    "$kubectl" get sandbox.dayfly.dev/notes-demo -n notes -o 'jsonpath={.status.reason}: {.status.message}{"\n"}' >&2
    exit 1
fi
