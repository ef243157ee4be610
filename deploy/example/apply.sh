#!/bin/sh
# A PostgreSQL server, a plugin that makes databases in it, and a sandbox that has one; waits until it is Ready.
#   deploy/example/apply.sh          needs kubectl, a cluster with Dayfly, and the image postgres:15 there
set -eu
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
kubectl=${KUBECTL:-kubectl}
present() { "$kubectl" get "$@" >/dev/null 2>&1; }

"$kubectl" apply -f "$here/database.yaml"
if ! present secret database -n notes; then
    od -An -N24 -tx1 /dev/urandom | tr -d ' \n' |
        "$kubectl" create secret generic database -n notes --from-file=password=/dev/stdin
fi
# Steps get the server's address, not its name: that serves in clusters without DNS, too.
host=$("$kubectl" get service database -n notes -o 'jsonpath={.spec.clusterIP}')
if ! present secret notes-database -n dayfly-runners; then
    "$kubectl" get secret database -n notes -o 'jsonpath={.data.password}' | base64 -d |
        "$kubectl" create secret generic notes-database -n dayfly-runners \
            --from-literal=host="$host" --from-literal=user=postgres --from-file=password=/dev/stdin
fi
# Steps of this plugin alone may read it: what lies beside it in that namespace is closed to them, and it to others.
"$kubectl" annotate --overwrite secret notes-database -n dayfly-runners dayfly.dev/plugins=cluster:postgres-notes
# The sandbox's namespace gets a Secret of the outputs: its administrator lets the operator write there.
present rolebinding dayfly-forks -n notes || "$kubectl" create rolebinding dayfly-forks -n notes \
    --clusterrole=dayfly-forks --serviceaccount=dayfly-system:dayfly-operator
"$kubectl" rollout status deployment/database -n notes --timeout=180s
"$kubectl" apply -f "$here/plugin.yaml" -f "$here/sandbox.yaml"
if ! "$kubectl" wait --for=condition=Ready sandbox.dayfly.dev/notes-demo -n notes --timeout=180s; then
    "$kubectl" get sandbox.dayfly.dev/notes-demo -n notes -o 'jsonpath={.status.reason}: {.status.message}{"\n"}' >&2
    exit 1
fi
