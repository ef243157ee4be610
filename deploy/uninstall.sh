#!/bin/sh
# Removes Dayfly from a cluster: first hooks and sandboxes with their cleanup, then Dayfly itself, then its labels on
# namespaces. Prints what remains, each with the command that removes it.
#   deploy/uninstall.sh [--timeout 15m] [--keep-definitions]
# If a sandbox is not gone in time, it stops with exit code 1 and removes nothing else: without the operator, the cleanup would
# never be completed. --keep-definitions keeps the CRDs, and with them the published plugins.
set -eu
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
kubectl=${KUBECTL:-kubectl}
timeout=15m
keep=
while [ $# -gt 0 ]; do
    case $1 in
    --timeout) timeout=${2:?--timeout needs a duration like 15m}; shift 2 ;;
    --keep-definitions) keep=yes; shift ;;
    *) echo "usage: uninstall.sh [--timeout 15m] [--keep-definitions]" >&2; exit 2 ;;
    esac
done

say() { printf 'dayfly: %s\n' "$1" >&2; }
names() { # names of a kind; namespaced ones as namespace/name
    "$kubectl" get "$1.dayfly.dev" -A -o "jsonpath={range .items[*]}${2:-}{.metadata.name}{' '}{end}"
}

advise() { printf '    %s %s\n' "$kubectl" "$1" >&2; }
abandoning() { # print the commands that abandon objects: kind, then namespace/name ...
    kind_=$1
    shift
    for name in "$@"; do advise "annotate $kind_ -n '${name%%/*}' '${name#*/}' dayfly.dev/abandon=uninstall"; done
}
owed='{range .items[*]}{.spec.hook.name}|{.spec.plural}|{.ledger.target.apiVersion}|{.ledger.target.namespace}|'
owed="$owed"'{.ledger.target.name}{"\n"}{end}'

unhook() { # delete all hooks: their steps for existing objects are undone, and their finalizers removed
    found=$(names lifecyclehooks 2>/dev/null || true)
    [ -n "$found" ] || return 0
    say "deleting lifecycle hooks and waiting for their cleanup, at most $timeout: $found"
    for name in $found; do
        "$kubectl" delete lifecyclehooks.dayfly.dev "$name" --ignore-not-found --wait=false >/dev/null
    done
    "$kubectl" wait --for=delete lifecyclehooks.dayfly.dev --all --timeout="$timeout" >/dev/null 2>&1 || true
    left=$(names lifecyclehooks)
    if [ -n "$left" ]; then
        say "hooks whose cleanup is incomplete, so Dayfly is not removed: $left"
        say "see why with: $kubectl get lifecyclehooks.dayfly.dev -o wide"
        say "to abandon the cleanup for an object and leave its resources behind:"
        "$kubectl" get runs.dayfly.dev -o "jsonpath=$owed" | while IFS='|' read -r hook plural version space name; do
            [ -n "$hook" ] || continue
            case $version in */*) plural=$plural.${version%/*} ;; esac
            advise "annotate $plural -n '$space' '$name' dayfly.dev/abandon=uninstall"
        done
        exit 1
    fi
}

unmake() { # PLURAL WORDS: delete all objects of a kind after their cleanup
    found=$(names "$1" '{.metadata.namespace}/' 2>/dev/null || true)
    [ -n "$found" ] || return 0
    say "deleting $2 and waiting for their cleanup, at most $timeout: $found"
    for name in $found; do
        "$kubectl" delete "$1.dayfly.dev" -n "${name%%/*}" "${name#*/}" --ignore-not-found --wait=false >/dev/null
    done
    "$kubectl" wait --for=delete "$1.dayfly.dev" --all -A --timeout="$timeout" >/dev/null 2>&1 || true
    left=$(names "$1" '{.metadata.namespace}/')
    if [ -n "$left" ]; then
        say "$2 whose cleanup is incomplete, so Dayfly is not removed: $left"
        say "see why with: $kubectl get $1.dayfly.dev -A -o wide"
        say "to give one up:"
        # shellcheck disable=SC2086 - one word for each
        abandoning "$1.dayfly.dev" $left
        exit 1
    fi
}
uncheck() { # delete all leak checks; a sweep that is under way ends first
    found=$(names leakchecks 2>/dev/null || true)
    [ -n "$found" ] || return 0
    say "deleting leak checks, at most $timeout: $found"
    "$kubectl" delete leakchecks.dayfly.dev --all --wait=false >/dev/null
    "$kubectl" wait --for=delete leakchecks.dayfly.dev --all --timeout="$timeout" >/dev/null 2>&1 || true
    left=$(names leakchecks)
    if [ -n "$left" ]; then
        say "leak checks whose sweep has not ended, so Dayfly is not removed: $left"
        say "see why with: $kubectl get leakchecks.dayfly.dev -o wide"
        exit 1
    fi
}
ungroup() {
    uncheck
    unmake routegroups "route groups"
    unmake resourcepools pools
}

drain() { # delete all sandboxes with their cleanup; stop if one remains
    asked=" "
    while :; do # again for sandboxes that were created in the meantime
        found=
        for name in $(names sandboxes '{.metadata.namespace}/'); do
            case $asked in *" $name "*) ;; *) found="$found$name " ;; esac
        done
        [ -n "$found" ] || break
        asked="$asked$found"
        say "deleting sandboxes and waiting for their cleanup, at most $timeout: $found"
        for name in $found; do
            "$kubectl" delete sandboxes.dayfly.dev -n "${name%%/*}" "${name#*/}" --ignore-not-found --wait=false >/dev/null
        done
        "$kubectl" wait --for=delete sandboxes.dayfly.dev --all -A --timeout="$timeout" >/dev/null 2>&1 || true
    done
    if [ -z "$(names sandboxes)" ]; then # a run is deleted a moment after its sandbox
        "$kubectl" wait --for=delete runs.dayfly.dev --all --timeout="$timeout" >/dev/null 2>&1 || true
    fi
    left=$(names sandboxes '{.metadata.namespace}/')
    runs=$(names runs)
    if [ -n "$left$runs" ]; then
        say "still being cleaned up, so Dayfly is not removed: $left${runs:+(runs: $runs)}"
        say "see why with: $kubectl get dfs -A -o wide"
        if [ -n "$left" ]; then
            say "to give one up and leave its resources behind:"
            # shellcheck disable=SC2086 - one word for each
            abandoning sandboxes.dayfly.dev $left
        else
            say "these runs have no sandbox left; see what they wait for with: $kubectl -n dayfly-system logs deployment/dayfly-operator"
        fi
        served=$("$kubectl" get sandboxes.dayfly.dev -A -l dayfly.dev/served -o "jsonpath={range .items[*]}{.metadata.namespace}/{.metadata.name}{' '}{end}")
        [ -z "$served" ] || say "created by a server, which must confirm their end; if the server no longer exists:"
        for name in $served; do
            advise "annotate sandboxes.dayfly.dev -n '${name%%/*}' '${name#*/}' dayfly.dev/forget=uninstall"
        done
        exit 1
    fi
}

# If the CRDs stay, a sandbox could be created at the last moment without any cleanup: the API server refuses new ones until the
# operator is gone.
kind=ValidatingAdmissionPolicy
bar() {
    trap unbar EXIT
    trap 'exit 1' HUP INT TERM
    "$kubectl" apply -f - >/dev/null <<END
apiVersion: admissionregistration.k8s.io/v1
kind: $kind
metadata: {name: dayfly-uninstall}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [dayfly.dev], apiVersions: ["*"], operations: [CREATE], resources: [sandboxes, routegroups, resourcepools, lifecyclehooks, leakchecks]}
  validations:
  - expression: "false"
    message: "Dayfly is being taken out of this cluster; if it is not: kubectl delete validatingadmissionpolicy,validatingadmissionpolicybinding dayfly-uninstall"
---
apiVersion: admissionregistration.k8s.io/v1
kind: ${kind}Binding
metadata: {name: dayfly-uninstall}
spec: {policyName: dayfly-uninstall, validationActions: [Deny]}
END
    tries=0
    while "$kubectl" create --dry-run=server -f - >/dev/null 2>&1 <<END
apiVersion: dayfly.dev/v1alpha1
kind: Sandbox
metadata: {generateName: dayfly-uninstall-, namespace: default}
spec: {cluster: none}
END
    do
        tries=$((tries + 1))
        [ "$tries" -le 150 ] || { say "sandboxes can still be made, so Dayfly is not removed; begin again"; exit 1; }
        sleep 0.2
    done
}
unbar() { "$kubectl" delete --ignore-not-found "$kind,${kind}Binding" dayfly-uninstall >/dev/null; }

if "$kubectl" get crd sandboxes.dayfly.dev >/dev/null 2>&1; then
    unhook
    ungroup
    drain
    if [ -n "$keep" ]; then
        bar
        unhook
        ungroup
        drain
    fi
    plugins=$(names resourceplugins)
    if [ -n "$keep" ]; then
        say "left: the kinds of dayfly.dev${plugins:+ and the plugins $plugins}"
    elif [ -n "$plugins" ]; then
        say "the published plugins go with the kinds: $plugins"
    fi
    if [ -z "$keep" ]; then
        # Without its CRD no sandbox can be created. The operator, which still runs, cleans up after one that was created just before.
        gone=yes
        "$kubectl" delete --ignore-not-found --wait=true --timeout="$timeout" -f "$here/crds/lifecyclehooks.yaml" >/dev/null || gone=
        "$kubectl" delete --ignore-not-found --wait=true --timeout="$timeout" -f "$here/crds/sandboxes.yaml" >/dev/null || gone=
        "$kubectl" wait --for=delete runs.dayfly.dev --all --timeout="$timeout" >/dev/null 2>&1 || true
        runs=$(names runs)
        if [ -z "$gone" ] || [ -n "$runs" ]; then
            say "a sandbox or hook that was made meanwhile is still being cleaned up, so the operator stays (runs: $runs)"
            say "see why with: $kubectl -n dayfly-system logs deployment/dayfly-operator, then begin again"
            exit 1
        fi
    fi
fi

delete() { "$kubectl" delete --ignore-not-found --wait=true -f "$1" >/dev/null; }
# Policies first, because they protect the other objects. Namespaces are deleted with their content.
for part in policies operator network quota access namespaces; do delete "$here/base/$part.yaml"; done
[ -n "$keep" ] || for part in "$here"/crds/*s.yaml; do delete "$part"; done

# Last, because the operator labels a namespace until its last pod has ended, and some seconds longer. A policy of a later
# installation would prevent other users from removing the label.
unlabel() { # remove the label from objects of a kind
    for name in $("$kubectl" get "$1" -l dayfly.dev/in-use -o "jsonpath={range .items[*]}{.metadata.name}{' '}{end}"); do
        "$kubectl" label "$1" "$name" dayfly.dev/in-use- >/dev/null || {
            say "the label dayfly.dev/in-use stays on $1 $name; to remove it:"
            advise "label $1 '$name' dayfly.dev/in-use-"
        }
    done
}
unlabel namespaces
[ -z "$keep" ] || unlabel resourceplugins.dayfly.dev

# Grants of administrators and leftovers of abandoned runs, with the commands that remove them.
left() {
    every='{range .items[*]}{.kind}|{.metadata.namespace}|{.metadata.name}|'
    "$kubectl" get rolebindings,clusterrolebindings -A -o "jsonpath=$every{.subjects[*].namespace}{'\n'}{end}" |
        while IFS='|' read -r kind_ space name of; do
            case " $of " in *" dayfly-system "*) advise "delete $kind_${space:+ -n '$space'} '$name'" ;; esac
        done
    "$kubectl" get clusterroles -l dayfly.dev/targets -o "jsonpath=$every{'\n'}{end}" |
        while IFS='|' read -r kind_ space name _; do advise "delete $kind_ '$name'"; done
    for field in labels annotations; do
        [ $field = labels ] && verb=label || verb=annotate
        "$kubectl" get namespaces -o "jsonpath={range .items[*]}{.metadata.name}|{.metadata.$field}{'\n'}{end}" |
            while IFS='|' read -r name keys; do
                for key in $(printf '%s' "$keys" | grep -o '"dayfly\.dev/[a-z-]*":' | tr -d '":'); do
                    advise "$verb namespace '$name' $key-"
                done
            done
    done
    "$kubectl" get pods,deployments.apps,services,secrets -A -l dayfly.dev/run -o "jsonpath=$every{'\n'}{end}" |
        while IFS='|' read -r kind_ space name _; do
            advise "patch $kind_ -n '$space' '$name' --type merge -p '{\"metadata\":{\"finalizers\":null}}'"
            advise "delete $kind_ -n '$space' '$name' --ignore-not-found"
        done
}
found=$(left 2>&1)
if [ -n "$found" ]; then
    say "removed. Grants and leftovers of abandoned sandboxes remain; these commands remove them:"
    printf '%s\n' "$found" >&2
else
    say "removed completely"
fi
