"""Allowed and refused changes of a pod by the API server and webhooks before its gate is removed."""

import copy

import pytest
from tests.policy.overlays import merged

from dayfly.execute.pod import policy


def seen():
    pod = copy.deepcopy(merged({}))
    main = pod["spec"]["containers"][0]
    main |= {"imagePullPolicy": "IfNotPresent", "terminationMessagePath": "/dev/termination-log"}
    pod["spec"] |= {"schedulerName": "default-scheduler", "serviceAccountName": "default", "priority": 0}
    pod["metadata"] |= {"uid": "u", "resourceVersion": "1"}
    return pod


def test_defaults_pass():
    assert policy.find_changes(seen(), merged({})) == []


def test_admission_webhook_may_make_ordinary_changes():
    pod = seen()
    main = pod["spec"]["containers"][0]
    main["image"] = "mirror.example/x:1"
    main["env"] = [{"name": "PROXY", "value": "x"}]
    main["volumeMounts"].append({"name": "certificates", "mountPath": "/etc/ssl/extra"})
    pod["spec"]["volumes"].append({"name": "certificates", "configMap": {"name": "c"}})
    token = {"name": "token", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}
    pod["spec"]["containers"].append({"name": "istio-proxy", "image": "p", "volumeMounts": [token]})
    pod["metadata"]["labels"]["mesh"] = "on"
    pod["metadata"]["finalizers"].append("other/one")
    assert policy.find_changes(pod, merged({})) == []


def test_volume_from_an_overlay_may_be_changed():
    rendered = merged({"spec": {"volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Gi"}}]}})
    stored = copy.deepcopy(rendered)
    next(each for each in stored["spec"]["volumes"] if each["name"] == "v")["emptyDir"] = {"sizeLimit": "2Gi"}
    assert policy.find_changes(stored, rendered) == []


def test_unset_security_context_may_be_filled_in():
    """A webhook of an administrator may make pods stricter."""
    rendered, stored = copy.deepcopy(merged({})), seen()
    del rendered["spec"]["containers"][0]["securityContext"]
    stored["spec"]["containers"][0]["securityContext"] = {"readOnlyRootFilesystem": True}
    assert policy.find_changes(stored, rendered) == []


@pytest.mark.parametrize(
    ("change", "path"),
    [
        (lambda pod, main: pod["metadata"].update(name="other"), "metadata.name"),
        (lambda pod, main: pod["metadata"].update(namespace="other"), "metadata.namespace"),
        (lambda pod, main: pod["metadata"].update(finalizers=None), "metadata.finalizers"),
        (lambda pod, main: pod["metadata"]["ownerReferences"][0].update(uid="other"), "metadata.ownerReferences"),
        (lambda pod, main: pod["spec"].pop("schedulingGates"), "spec.schedulingGates"),
        (lambda pod, main: pod["spec"].update(hostPID=True), "spec.hostPID"),
        (lambda pod, main: pod["spec"].update(hostIPC=True), "spec.hostIPC"),
        (lambda pod, main: pod["spec"].update(shareProcessNamespace=True), "spec.shareProcessNamespace"),
        (lambda pod, main: pod["spec"].update(ephemeralContainers=[{"name": "x"}]), "spec.ephemeralContainers"),
        (lambda pod, main: pod["spec"]["volumes"][0].update(projected={"sources": []}), "spec.volumes (dayfly)"),
        (lambda pod, main: main.update(terminationMessagePolicy="FallbackToLogsOnError"), "container main: termi"),
        (lambda pod, main: main.update(startupProbe={"exec": {}}), "container main: startupProbe"),
        (
            lambda pod, main: pod["spec"].update(
                initContainers=[{"name": "early", "volumeMounts": [{"name": "x", "mountPath": "/dayfly"}]}]
            ),
            "container early: volumeMounts",
        ),
        (lambda pod, main: pod["metadata"]["finalizers"].clear(), "metadata.finalizers"),
        (lambda pod, main: pod["metadata"].pop("ownerReferences"), "metadata.ownerReferences"),
        (
            lambda pod, main: pod["metadata"]["annotations"].update({"dayfly.dev/order": "x"}),
            "metadata.annotations",
        ),
        (lambda pod, main: pod["metadata"]["labels"].pop("dayfly.dev/run"), "metadata.labels"),
        (lambda pod, main: pod["spec"]["schedulingGates"].clear(), "spec.schedulingGates"),
        (lambda pod, main: pod["spec"].update(hostNetwork=True), "spec.hostNetwork"),
        (lambda pod, main: pod["spec"].update(nodeName="n"), "spec.nodeName"),
        (lambda pod, main: pod["spec"].update(restartPolicy="Always"), "spec.restartPolicy"),
        (lambda pod, main: pod["spec"].update(activeDeadlineSeconds=5), "spec.activeDeadlineSeconds"),
        (lambda pod, main: pod["spec"].update(automountServiceAccountToken=True), "spec.automount"),
        (lambda pod, main: pod["spec"]["volumes"].pop(), "spec.volumes (dayfly-state)"),
        (lambda pod, main: main.update(command=["sh"]), "container main: command"),
        (lambda pod, main: main["command"].append("x"), "container main: command"),
        (lambda pod, main: main.update(command=None), "container main: command"),
        (lambda pod, main: main.update(command={}), "container main: command"),
        (lambda pod, main: main.update(securityContext=None), "container main: securityContext"),
        (lambda pod, main: main.update(args=["x"]), "container main: args"),
        (lambda pod, main: main.update(lifecycle={"postStart": {}}), "container main: lifecycle"),
        (lambda pod, main: main["securityContext"].update(allowPrivilegeEscalation=True), "container main: securi"),
        (lambda pod, main: main["volumeMounts"].pop(), "container main: volumeMounts"),
        (
            lambda pod, main: main["volumeMounts"].append({"name": "x", "mountPath": "/dayfly/in"}),
            "container main: volumeMounts",
        ),
        (
            lambda pod, main: pod["spec"]["containers"].append(
                {"name": "spy", "volumeMounts": [{"name": "dayfly-state", "mountPath": "/s"}]}
            ),
            "container spy: volumeMounts",
        ),
        (  # exactly as in the step's own container
            lambda pod, main: pod["spec"]["containers"].append(
                {"name": "spy", "volumeMounts": main["volumeMounts"][:1]}
            ),
            "container spy: volumeMounts",
        ),
    ],
)
def test_forbidden_change_of_a_stored_pod_is_found(change, path):
    pod = seen()
    change(pod, pod["spec"]["containers"][0])
    found = policy.find_changes(pod, merged({}))
    assert [each.path.startswith(path) for each in found] == [True], found


def test_removed_labels_are_named():
    pod = seen()
    pod["metadata"]["labels"] = None
    found = [each.path for each in policy.find_changes(pod, merged({}))]
    assert found == ["metadata.labels[dayfly.dev/run]", "metadata.labels[dayfly.dev/reads]"]


@pytest.mark.parametrize(
    "stored",
    [
        {},
        {"metadata": None, "spec": None},
        {"metadata": {}, "spec": {"containers": None, "volumes": None}},
        {
            "metadata": {"labels": None, "annotations": None},
            "spec": {"containers": [{"name": "main", "volumeMounts": None}]},
        },
    ],
)
def test_each_removed_part_of_a_stored_pod_is_reported(stored):
    """The check finds every removed field and raises nothing."""
    told = {violation.path for violation in policy.find_changes(stored, merged({}))}
    assert told >= {
        "metadata.name",
        "metadata.finalizers",
        "metadata.ownerReferences",
        "metadata.labels[dayfly.dev/run]",
        "spec.schedulingGates",
        "spec.volumes (dayfly)",
        "container main: command",
        "container main: volumeMounts",
    }
