"""The policy for pods: refused and accepted templates, and changes by webhooks."""

import pytest
from tests.policy.overlays import check, merged, terms

from dayfly.execute.pod import policy


def main(**fields):
    return {"spec": {"containers": [{"name": "main", **fields}]}}


def side(**fields):
    safe = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    return {"name": "side", "image": "x", "securityContext": safe, **fields}


def spec(**fields):
    return {"spec": fields}


def volume(**fields):
    return {"spec": {"volumes": [{"name": "v", **fields}]}}


REFUSED = [
    (main(securityContext={"privileged": True}), "spec.containers[0].securityContext.privileged must be false"),
    (main(securityContext={"allowPrivilegeEscalation": True}), "allowPrivilegeEscalation must be false"),
    (main(securityContext={"capabilities": {"add": ["SYS_ADMIN"]}}), "capabilities.add must be empty"),
    (main(securityContext={"capabilities": {"drop": []}}), "capabilities.drop must contain ALL"),
    (main(securityContext={"procMount": "Unmasked"}), "procMount must be 'Default'"),
    (main(securityContext={"runAsUser": 0}), "runAsUser must not be 0"),
    (
        main(resources={"limits": {"memory": "-64Mi"}}),
        "resources.limits[memory] must be a non-negative quantity",
    ),
    (main(resources={"requests": {"cpu": -1}}), "resources.requests[cpu] must be a non-negative quantity"),
    (main(resources={"limits": {"cpu": "half"}}), "resources.limits[cpu] must be a non-negative quantity"),
    (main(resources={"limits": {"cpu": True}}), "resources.limits[cpu] must be a non-negative quantity"),
    (main(resources={"limits": "1Gi"}), "resources.limits must be a mapping"),
    *(
        (main(resources={"limits": {"memory": each}}), "resources.limits[memory] must be at least 6Mi")
        for each in ("1Mi", "6143Ki", "1", 4096, "4e6", "0", "100m", "6M")
    ),
    (volume(emptyDir={"sizeLimit": "-1Gi"}), "emptyDir.sizeLimit must be a non-negative quantity"),
    (
        spec(securityContext={"runAsUser": None}),
        "spec.securityContext.runAsGroup needs a runAsUser in the same context",
    ),
    (main(securityContext={"runAsNonRoot": False}), "runAsNonRoot must not be false"),
    (
        main(securityContext={"seLinuxOptions": {"type": "spc_t"}}),
        "seLinuxOptions can be set only by the administrator",
    ),
    (main(securityContext={"seccompProfile": {"type": "Unconfined"}}), "seccompProfile.type must be 'RuntimeDefault'"),
    (spec(securityContext={"seccompProfile": None}), "seccompProfile must be RuntimeDefault here or for the pod"),
    (spec(securityContext={"$patch": "replace"}), "runAsNonRoot must be true here or for the pod"),
    (spec(securityContext={"sysctls": [{"name": "a", "value": "b"}]}), "spec.securityContext.sysctls must be empty"),
    (
        {"metadata": {"labels": {"dayfly.dev/recalled": "1"}}},
        "metadata.labels[dayfly.dev/recalled] is reserved for Dayfly",
    ),
    (spec(hostNetwork=True), "spec.hostNetwork must be false"),
    (spec(hostPID=True), "spec.hostPID must be false"),
    (spec(hostIPC=True), "spec.hostIPC must be false"),
    (spec(hostUsers=True), "spec.hostUsers must be false"),
    (spec(shareProcessNamespace=True), "spec.shareProcessNamespace must be false"),
    (spec(nodeName="n"), "spec.nodeName would bypass the scheduler"),
    (spec(tolerations=[{"operator": "Exists"}]), "spec.tolerations[0] tolerates taints of the control plane"),
    (
        spec(tolerations=[{"key": "node-role.kubernetes.io/master"}]),
        "spec.tolerations[0] tolerates taints of the control plane",
    ),
    (spec(ephemeralContainers=[]), "spec.ephemeralContainers can be added only to running pods"),
    (spec(serviceAccountName="admin"), "spec.serviceAccountName admin is not granted to plugins in dayfly-runners"),
    (spec(serviceAccount="admin"), "spec.serviceAccount admin is not granted"),
    (spec(automountServiceAccountToken=True), "spec.automountServiceAccountToken must be false"),
    (
        spec(automountServiceAccountToken=None),
        "spec.automountServiceAccountToken is set by Dayfly and must not be removed",
    ),
    (spec(restartPolicy="Always"), "spec.restartPolicy must be 'Never'"),
    (spec(schedulingGates=None), "spec.schedulingGates is set by Dayfly and must not be removed"),
    (spec(schedulingGates=[{"name": "dayfly.dev/claim", "$patch": "delete"}]), "spec.schedulingGates must be"),
    (spec(schedulingGates=[{"name": "x"}]), "spec.schedulingGates must be"),
    (spec(activeDeadlineSeconds=None), "spec.activeDeadlineSeconds is set by Dayfly and must not be removed"),
    (spec(priorityClassName="system-node-critical"), "spec.priorityClassName is set by Dayfly"),
    (spec(os={"name": "windows"}), "spec.os is always Linux"),
    (spec(newField=1), "spec.newField is not an allowed field"),
    (volume(hostPath={"path": "/"}), "spec.volumes[0].hostPath would access the node's files"),
    (volume(nfs={"server": "x", "path": "/"}), "spec.volumes[0].nfs is not an allowed field"),
    (volume(csi={"driver": "x"}), "spec.volumes[0].csi is not an allowed field"),
    (volume(emptyDir={}, secret={"secretName": "x"}), "needs exactly one source; 2 are given"),
    (volume(), "needs exactly one source; 0 are given"),
    (volume(projected={"sources": [{"serviceAccountToken": {"path": "t"}}]}), "contains a service account token"),
    (volume(secret={"secretName": "../../team/secrets/x"}), "spec.volumes[0].secret is not a valid name of a Secret"),
    (spec(imagePullSecrets=[{}]), "spec.imagePullSecrets[0] is not a valid name of a Secret"),
    (main(envFrom=[{"secretRef": {}}]), "spec.containers[0].envFrom[0] is not a valid name of a Secret"),
    (volume(secret={}), "spec.volumes[0].secret is not a valid name of a Secret"),
    (volume(configMap={}), "spec.volumes[0].configMap is not a valid name of a ConfigMap"),
    (
        volume(projected={"sources": [{"configMap": {}}]}),
        "spec.volumes[0].sources[0] is not a valid name of a ConfigMap",
    ),
    (spec(volumes=[{"name": "dayfly", "$patch": "delete"}]), "spec.volumes (dayfly) contains the runner"),
    (spec(volumes=[{"name": "dayfly", "projected": {"sources": []}}]), "spec.volumes (dayfly) contains the runner"),
    (
        spec(volumes=[{"name": "dayfly-state", "emptyDir": {"medium": "Memory"}}]),
        "(dayfly-state) contains the start marker",
    ),
    (spec(volumes=[{"name": "dayfly-x", "emptyDir": {}}]), "dayfly-x is a reserved name"),
    (main(command=["sh"]), "container main: command is set by Dayfly"),
    (main(args=["x"]), "container main: command is set by Dayfly"),
    (main(lifecycle={"postStart": {}}), "spec.containers[0].lifecycle would run commands outside of the script"),
    (main(livenessProbe={}), "spec.containers[0].livenessProbe is not an allowed field"),
    (main(terminationMessagePolicy="FallbackToLogsOnError"), "terminationMessagePolicy must stay File"),
    (main(terminationMessagePath="/tmp/x"), "spec.containers[0].terminationMessagePath is not an allowed field"),
    (
        main(ports=[{"containerPort": 1, "hostPort": 1}]),
        "spec.containers[0].ports[0].hostPort would open a port of the node",
    ),
    (main(volumeMounts=[{"name": "v", "mountPath": "/dayfly/in"}]), "uses a volume or path of the runner"),
    (main(volumeMounts=[{"name": "v", "mountPath": "/dev/termination-log"}]), "uses a volume or path of the runner"),
    (main(volumeMounts=[{"name": "v", "mountPath": "/a/../dayfly"}]), "uses a volume or path of the runner"),
    (main(volumeMounts=[{"name": "v", "mountPath": "/"}]), "uses a volume or path of the runner"),
    (main(volumeMounts=[{"name": "v", "mountPath": "//./"}]), "uses a volume or path of the runner"),
    (main(volumeMounts=[{"name": "v", "mountPath": "/run"}]), "uses a volume or path of the runner or the kernel"),
    (main(volumeMounts=[{"name": "v", "mountPath": "/var/run/"}]), "uses a volume or path of the runner or the kernel"),
    (main(volumeMounts=[{"mountPath": "/dayfly", "$patch": "delete"}]), "container main: volumeMounts lack"),
    (main(volumeMounts=[{"name": "v", "mountPath": "/x", "mountPropagation": "Bidirectional"}]), "must be 'None'"),
    (main(image=""), "spec.containers[0].image is missing"),
    (spec(containers=[{"name": "main", "$patch": "delete"}]), "lacks main, which runs the script"),
    (spec(containers=[{"name": "side", "image": "x"}]), "spec.containers[0].securityContext.allowPrivilegeEscalation"),
    (spec(containers=[side(volumeMounts=[{"name": "dayfly-state", "mountPath": "/s"}])]), "uses a volume or path of"),
    (spec(containers=[side(name="dayfly-x")]), "dayfly-x is used twice or reserved"),
    (spec(initContainers=[side(name="main")]), "spec.initContainers[0].name main is used twice or reserved"),
    (spec(containers=[side(name=f"s{n}") for n in range(8)]), "spec.containers has 9 items; at most 8"),
    (
        spec(initContainers=[side(name=f"s{n}") for n in range(4)], containers=[side(name=f"t{n}") for n in range(4)]),
        "at most 8",
    ),
    ({"metadata": {"labels": {"dayfly.dev/x": "y"}}}, "metadata.labels[dayfly.dev/x] is reserved for Dayfly"),
    ({"metadata": {"annotations": {"dayfly.dev/x": "y"}}}, "metadata.annotations[dayfly.dev/x] is reserved for Dayfly"),
    (
        {"metadata": {"annotations": {"container.apparmor.security.beta.kubernetes.io/main": "unconfined"}}},
        "controls Kubernetes itself",
    ),
    (
        {"metadata": {"annotations": {"iam.amazonaws.com/role": "admin"}}},
        "[iam.amazonaws.com/role] is not allowed on pods",
    ),
    ({"metadata": {"annotations": {"app.kubernetes.io/name": "x"}}}, "[app.kubernetes.io/name] controls Kubernetes"),
    ({"metadata": {"labels": {"app": "database"}}}, "metadata.labels[app] is not allowed on pods of steps"),
    ({"metadata": {"labels": {"kubectl.kubernetes.io/default-container": "x"}}}, "controls Kubernetes itself"),
    ({"metadata": {"generateName": "x-"}}, "metadata.generateName is not an allowed field"),
    ({"metadata": {"deletionTimestamp": "x"}}, "metadata.deletionTimestamp is not an allowed field"),
]

ARGO = {
    "CVE-2026-31892: the patch switches off what the template sets": spec(
        securityContext={"$patch": "replace"}, hostNetwork=True, serviceAccountName="admin"
    ),
    "CVE-2026-42296: the dangerous field comes by a directive, not a value": spec(
        volumes=[{"name": "dayfly-state", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/"}}],
        containers=[{"name": "main", "securityContext": {"$patch": "delete"}}],
    ),
    "CVE-2026-54526: a container that the check of the input never saw": spec(
        initContainers=[{"name": "late", "image": "x", "securityContext": {"privileged": True}}]
    ),
}

ALLOWED = [
    {},
    main(env=[{"name": "PGHOST", "valueFrom": {"secretKeyRef": {"name": "postgres-schema", "key": "host"}}}]),
    {
        "spec": {
            "containers": [{"name": "main", "volumeMounts": [{"name": "state", "mountPath": "/var/lib/state"}]}],
            "volumes": [{"name": "state", "persistentVolumeClaim": {"claimName": "terraform-state"}}],
        }
    },
    {
        "metadata": {
            "annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"},
            "labels": {"app.kubernetes.io/name": "x"},
        }
    },
    spec(initContainers=[side(restartPolicy="Always")], nodeSelector={"disk": "ssd"}, imagePullSecrets=[{"name": "r"}]),
    main(resources={"limits": {"cpu": "1"}}, securityContext={"runAsUser": 1000, "readOnlyRootFilesystem": True}),
    spec(tolerations=[{"key": "gpu", "operator": "Exists"}], runtimeClassName="gvisor"),
]


@pytest.mark.parametrize(("overlay", "words"), REFUSED, ids=[words[:60] for _, words in REFUSED])
def test_policy_refuses_with_path_and_message(overlay, words):
    found = check(overlay)
    assert any(words in violation for violation in found), found


@pytest.mark.parametrize("overlay", ARGO.values(), ids=ARGO)
def test_policy_refuses_overlays_that_argo_accepted(overlay):
    """Earlier checks read the patch and were bypassed three times. This one reads only the merged pod."""
    assert check(overlay)


@pytest.mark.parametrize("overlay", ALLOWED, ids=range(len(ALLOWED)))
def test_policy_allows_ordinary_templates(overlay):
    assert check(overlay) == []


def test_policy_allows_granted_fields():
    """An account, a token and `baseline` are accepted only if the administrator granted them."""
    account = spec(serviceAccountName="loader", automountServiceAccountToken=True)
    assert check(account, service_accounts=frozenset({"loader"}), tokens=True) == []
    assert len(check(account, service_accounts=frozenset({"loader"}))) == 1
    root = merged(spec(securityContext={"runAsUser": 0}), restricted=False)
    assert policy.check(root, terms(level="baseline")) == []
    assert policy.check(root, terms()) != []
    privileged = merged(main(securityContext={"privileged": True}), restricted=False)
    assert policy.check(privileged, terms(level="baseline")) != []


@pytest.mark.parametrize(
    ("keys", "passes"), [("team.example/cost", True), ("team.example/*", True), ("other/*", False)]
)
def test_granted_keys_are_allowed(keys, passes):
    overlay = {"metadata": {"annotations": {"team.example/cost": "a"}, "labels": {"team.example/cost": "a"}}}
    assert (check(overlay, keys=frozenset({keys})) == []) is passes


@pytest.mark.parametrize("field", ["labels", "annotations"])
@pytest.mark.parametrize(
    "key", ["dayfly.dev/run", "dayfly.dev/x", "container.apparmor.security.beta.kubernetes.io/main"]
)
def test_reserved_keys_are_never_allowed(field, key):
    """A template cannot set keys of Dayfly and Kubernetes, whatever a namespace allows."""
    plain, pod = merged({}), merged({"metadata": {field: {key: "x"}}})
    assert pod == plain or policy.check(pod, terms(keys=frozenset({"*"}))) != []


READS = {
    "Secret x at spec.containers[0].env[0]": main(
        env=[{"name": "A", "valueFrom": {"secretKeyRef": {"name": "x", "key": "k"}}}]
    ),
    "ConfigMap x at spec.containers[0].env[0]": main(
        env=[{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "x", "key": "k"}}}]
    ),
    "Secret x at spec.containers[0].envFrom[0]": main(envFrom=[{"secretRef": {"name": "x", "optional": True}}]),
    "ConfigMap x at spec.containers[0].envFrom[0]": main(envFrom=[{"configMapRef": {"name": "x"}}]),
    "Secret x at spec.initContainers[0].envFrom[0]": spec(
        initContainers=[side(restartPolicy="Always", envFrom=[{"secretRef": {"name": "x"}}])]
    ),
    "Secret x at spec.volumes[0].secret": volume(secret={"secretName": "x"}),
    "ConfigMap x at spec.volumes[0].configMap": volume(configMap={"name": "x"}),
    "PersistentVolumeClaim x at spec.volumes[0].persistentVolumeClaim": volume(
        persistentVolumeClaim={"claimName": "x"}
    ),
    "Secret x at spec.volumes[0].sources[0]": volume(projected={"sources": [{"secret": {"name": "x"}}]}),
    "ConfigMap x at spec.volumes[0].sources[0]": volume(projected={"sources": [{"configMap": {"name": "x"}}]}),
    "Secret x at spec.imagePullSecrets[0]": spec(imagePullSecrets=[{"name": "x"}]),
}


@pytest.mark.parametrize("overlay", READS.values(), ids=READS)
def test_all_references_of_a_pod_are_found(request, overlay):
    """An inline plugin may not refer to objects of the namespace in any way."""
    (found,) = policy.references(merged(overlay))
    assert f"{found.kind} {found.name} at {found.path}" == request.node.callspec.id
    assert check(overlay) == []
    assert any("only a published plugin can be granted that" in said for said in check(overlay, inline=True))


def test_priority_class_is_only_for_cleanup():
    """Quotas depend on the class: only pods that delete have it."""
    ours = spec(priorityClassName="dayfly-cleanup")
    assert check(ours) == ["spec.priorityClassName is set by Dayfly; remove it"]
    for overlay in ({}, ours, spec(priorityClassName=None), spec(priorityClassName="system-node-critical")):
        made = merged(overlay, cleaning=True)
        assert made["spec"]["priorityClassName"] == "dayfly-cleanup"
        assert policy.check(made, terms(cleaning=True)) == []
    assert policy.check(merged({}), terms(cleaning=True)) != []


def test_duplicate_volume_is_reported():
    """A merge combines two mounts, but a webhook or a bug could leave both."""
    pod = merged(volume(emptyDir={"sizeLimit": "1Gi"}))
    pod["spec"]["volumes"].append(pod["spec"]["volumes"][0])
    assert [str(each) for each in policy.check(pod, terms())] == ["spec.volumes[3].name v appears twice"]


def test_mounts_made_by_dayfly_need_no_grant():
    assert policy.references(merged({})) == []
    assert policy.check(merged({}), terms(inline=True)) == []


def test_wrong_namespace_or_runner_is_refused():
    pod = merged({})
    assert [each.path for each in policy.check(pod, terms("other"))] == ["metadata.namespace"]
    other = policy.PodTerms(namespace="dayfly-runners", runner="mine")
    assert [each.path for each in policy.check(pod, other)] == ["spec.volumes (dayfly)"]


def test_secret_of_another_step_is_refused():
    """Dayfly's volume contains only the Secrets of this step's inputs."""
    pod = merged({})
    volume = next(each for each in pod["spec"]["volumes"] if each["name"] == "dayfly")
    source = {"name": "o-db-make-aaaaaaaaaaaaaaaa", "items": [{"key": "url", "path": "in/url"}]}
    volume["projected"]["sources"].append({"secret": source})
    assert [each.path for each in policy.check(pod, terms())] == ["spec.volumes (dayfly)"]
    both = policy.PodTerms(
        namespace="dayfly-runners", runner=terms().runner, secrets=terms().secrets | {source["name"]}
    )
    assert policy.check(pod, both) == []


def test_null_source_counts_as_absent():
    for other, found in ((None, []), ({"name": "x"}, ["needs exactly one kind of source"])):
        pod = merged(volume(projected={"sources": [{"configMap": {"name": "x"}}]}))
        pod["spec"]["volumes"][0]["projected"]["sources"][0]["secret"] = other
        assert [each.sentence for each in policy.check(pod, terms())] == found


ORDER = {"path": "order", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.annotations['dayfly.dev/order']"}}
UID = {"path": "uid", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.uid"}}


@pytest.mark.parametrize(
    "change",
    [
        lambda ours: ours.update(defaultMode=0o777),
        lambda ours: ours["sources"][0]["configMap"]["items"][0].update(mode=0o777),
        lambda ours: ours["sources"].pop(0),
        lambda ours: ours.update(sources=ours["sources"][:1]),
        lambda ours: ours["sources"][1].update(downwardAPI={}),
        lambda ours: ours["sources"][1].update(serviceAccountToken={"path": "t"}),
        lambda ours: ours["sources"][1].update(downwardAPI={"items": [UID]}),
        lambda ours: ours["sources"][1].update(downwardAPI={"items": [ORDER, {**UID, "path": "other"}]}),
        lambda ours: ours["sources"][1].update(downwardAPI={"items": [{**UID, "path": "order"}]}),
        lambda ours: ours["sources"].append({"configMap": {"name": "x"}}),
        lambda ours: ours["sources"].append({"secret": {"name": "x"}}),
    ],
)
def test_changed_runner_volume_is_refused(change):
    pod = merged({})
    ours = next(each for each in pod["spec"]["volumes"] if each["name"] == "dayfly")["projected"]
    change(ours)
    assert [each.path for each in policy.check(pod, terms())] == ["spec.volumes (dayfly)"]


def test_pod_without_security_context_violates_restricted():
    pod = merged({})
    del pod["spec"]["securityContext"]
    assert [str(each) for each in policy.check(pod, terms())] == [
        "spec.containers[0].securityContext.runAsNonRoot must be true here or for the pod",
        "spec.containers[0].securityContext.seccompProfile must be RuntimeDefault here or for the pod",
    ]


def test_pod_without_its_owner_is_refused():
    pod = merged({})
    pod["metadata"]["ownerReferences"] = []
    assert [str(each) for each in policy.check(pod, terms())] == ["metadata.ownerReferences must name the Run"]


def test_script_container_is_found_by_name_in_any_position():
    pod = merged(spec(containers=[side(name="proxy")]))
    pod["spec"]["containers"].sort(key=lambda each: each["name"] == "main")
    assert policy.check(pod, terms()) == []
    assert policy.find_changes(pod, merged({})) == []
    pod["spec"]["containers"][1]["command"] = ["sh"]
    assert [each.path for each in policy.check(pod, terms())] == ["container main: command"]
    assert [each.path for each in policy.find_changes(pod, merged({}))] == ["container main: command"]


@pytest.mark.parametrize(("count", "more"), [(1, ""), (3, ""), (4, " (and 1 more)"), (9, " (and 6 more)")])
def test_first_three_violations_are_described(count, more):
    said = policy.describe([policy.Violation(f"spec.a{n}", "is wrong") for n in range(count)])
    assert said == "; ".join(f"spec.a{n} is wrong" for n in range(min(count, 3))) + more


def test_account_token_needs_a_grant():
    source = {"serviceAccountToken": {"path": "t", "expirationSeconds": 600}}
    pod = merged({"spec": {"volumes": [{"name": "t", "projected": {"sources": [source]}}]}})
    assert any("serviceAccountToken" in str(each) or "token" in str(each) for each in policy.check(pod, terms()))
    assert not any("service account's token" in str(each) for each in policy.check(pod, terms(tokens=True)))


@pytest.mark.parametrize(("granted", "said"), [((), "none"), (("loader", "backup"), "backup, loader")])
def test_refused_account_names_the_granted_ones(granted, said):
    found = check({"spec": {"serviceAccountName": "admin"}}, service_accounts=frozenset(granted))
    assert any(str(each).endswith(f"(granted: {said})") for each in found)
