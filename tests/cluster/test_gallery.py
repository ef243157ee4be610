"""The gallery's examples as pods of a cluster: with servers that they share, and objects of the cluster's own."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import psycopg
import pytest
from testcluster import stand_ins
from tests.cluster.installed import ROOT, RUNNERS, Installed
from tests.cluster.leak_check import checked
from tests.cluster.test_examples import TEAM, outputs, wishes_of
from tests.cluster.waiting import eventually
from tests.examples import external_services, gallery, servers
from tests.examples.leaks import similar

ENVIRONMENTS = "cat /proc/[0-9]*/environ | tr '\\000' '\\n'; true"
ACCOUNT = ROOT / "examples" / "k8s-apply" / "k8s" / "account.yaml"
JOB = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a-job"}}
NOT_OURS = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "theirs", "namespace": TEAM}}


@contextlib.contextmanager
def given(operator: Installed, plugin: str, **values: str) -> Iterator[None]:
    """The Secret that an administrator makes for a plugin."""
    meta = {"name": plugin, "namespace": RUNNERS, "annotations": {"dayfly.dev/plugins": f"cluster:{plugin}"}}
    operator.apply({"apiVersion": "v1", "kind": "Secret", "metadata": meta, "stringData": values})
    yield
    operator.own.kubectl("delete", "secret", plugin, "-n", RUNNERS)


@pytest.fixture
def account(operator: Installed) -> Iterator[None]:
    """The account that the example's README lets an administrator apply, for sandboxes of two namespaces."""
    operator.own.load(stand_ins.kubectl())
    given_to = [ACCOUNT.read_text(), ACCOUNT.read_text().replace("namespace: team", "namespace: default")]
    for each in given_to:
        operator.own.kubectl("apply", "-f", "-", stdin=each)
    yield
    for each in given_to:  # the token is deleted with the account
        operator.own.kubectl("delete", "--ignore-not-found", "-f", "-", stdin=each)


def manifest(example: str, *sets: str) -> str:
    """Return the output of `dayfly manifest` for an example."""
    words = [word for each in sets for word in ("--set", each)]
    command = [sys.executable, "-m", "dayfly", "manifest", "-f", str(ROOT / "examples" / example), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def k8s_apply(name: str, manifests: str) -> dict[str, Any]:
    """The example's sandbox with manifests of a test's own."""
    _, sandbox = wishes_of("k8s-apply", image=stand_ins.KUBECTL)
    sandbox["metadata"]["name"] = name
    sandbox["spec"]["resources"][0]["params"]["manifests"] = manifests
    return sandbox


def owners(operator: Installed, namespace: str = TEAM) -> list[dict[str, Any]]:
    """Return the ConfigMaps that own the objects of a resource."""
    return operator.items(f"/api/v1/namespaces/{namespace}/configmaps?labelSelector=dayfly-resource")


def objects(operator: Installed, kind: str = "configmaps") -> dict[str, dict[str, Any]]:
    """Return the objects of all resources, by name."""
    every = operator.items(f"/api/v1/namespaces/{TEAM}/{kind}")
    return {each["metadata"]["name"]: each for each in every if "ownerReferences" in each["metadata"]}


def config(name: str, **more: Any) -> str:
    """A manifest."""
    return json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **more}})


def test_manifests_are_made_and_removed(operator: Installed, account: None):
    """Manifests are applied unchanged. A half `apply` is cleaned up; objects of other owners and namespaces stay."""
    operator.apply(NOT_OURS)
    refused = {
        "twice": (f"{config('a-half')}\n---\n{config('a-half')}", "already exists"),
        "taken": (f"{config('a-part')}\n---\n{config('theirs')}", "already exists"),
        "away": (config("elsewhere", namespace="default"), "does not match the namespace"),
        "forbidden": (json.dumps(JOB), "forbidden"),
    }
    with contextlib.ExitStack() as ends:
        ends.enter_context(operator.ending("k8s-apply-demo", TEAM))
        operator.own.kubectl("apply", "-n", TEAM, "-f", "-", stdin=manifest("k8s-apply", f"image={stand_ins.KUBECTL}"))
        for name, (manifests, _) in refused.items():
            ends.enter_context(operator.ending(name, TEAM))
            operator.apply(k8s_apply(name, manifests))
        operator.wait_status("k8s-apply-demo", TEAM, lambda status: status["phase"] in ("Ready", "Failed"), "an end")
        assert operator.status("k8s-apply-demo", TEAM)["ready"], log(operator, "k8s-apply-demo")
        told = outputs(operator, "k8s-apply-demo")
        assert told["apply.objects"] == b"configmap/k8s-apply-demo\nsecret/k8s-apply-demo\n"
        for name, (_, why) in refused.items():
            operator.wait_status(name, TEAM, lambda status: status["reason"] == "ResourceFailed", "the failure")
            assert why in log(operator, name)
        made = objects(operator)
        assert made.keys() == {"k8s-apply-demo", "a-half"}
        assert len(owners(operator)) == 2, "nothing is created after a refused dry run"
        assert made["k8s-apply-demo"]["data"]["driver.properties"] == "timeout=1s\ngreeting='it''s \"quoted\"'\n"
        for name in ("k8s-apply-demo", *refused):
            operator.own.kubectl("delete", "sandbox.dayfly.dev", name, "-n", TEAM, "--wait=false")
        for name in ("k8s-apply-demo", *refused):
            operator.wait_gone(name, TEAM)
    assert owners(operator) == []
    assert objects(operator) == {}
    assert "k8s-apply-demo" not in objects(operator, "secrets")
    operator.own.kubectl("delete", "configmap", "theirs", "-n", TEAM)  # it is there
    operator.check_nothing_left()


def test_orphan_of_a_namespace_is_deleted_without_its_neighbour(operator: Installed, account: None):
    """The param of the sandbox, whose author may write in one namespace only, does not select another one."""
    plugin, sandbox = wishes_of("k8s-apply", image=stand_ins.KUBECTL)
    name = sandbox["metadata"]["name"]
    sandbox["spec"]["resources"][0]["params"]["namespace"] = "default"
    with contextlib.ExitStack() as ends:
        ends.enter_context(operator.ending(name, TEAM))
        operator.apply(plugin, sandbox)
        operator.wait_ready(name, TEAM)
        assert owners(operator, "default") == []
        [owner] = owners(operator)
        id_ = owner["metadata"]["labels"]["dayfly-resource"]
        foreign = f"dayfly-{similar(id_)}"
        meta = {"namespace": TEAM, "labels": {"dayfly-resource": similar(id_)}}
        operator.own.kubectl("apply", "-f", "-", stdin=config(foreign, **meta))
        ends.callback(operator.own.kubectl, "delete", "configmap", foreign, "-n", TEAM)
        check = ends.enter_context(checked(operator, "k8s-apply", namespace=TEAM))
        assert check.sweep("")["counts"]["held"] == 1
        operator.own.kubectl("annotate", "sandbox.dayfly.dev", name, "-n", TEAM, "dayfly.dev/abandon=force: a test")
        operator.wait_gone(name, TEAM)
        found = eventually(
            lambda: (seen := check.sweep("sweep"))["counts"]["orphan"] and seen, "an orphan in two lists"
        )
        assert {each["name"]: each["verdict"] for each in found["findings"]} == {
            owner["metadata"]["name"]: "orphan",
            foreign: "foreign",
        }
        assert objects(operator).keys() == {name}
        assert check.sweep(f"apply {found['plan']}")["applied"] == "done"
        assert [each["metadata"]["name"] for each in owners(operator)] == [foreign]
        assert objects(operator) == {}
        assert name not in objects(operator, "secrets")
    operator.check_nothing_left()


def log(operator: Installed, sandbox: str) -> str:
    """Return the stored log of a sandbox's steps."""

    def kept() -> str:
        found = json.loads(operator.own.kubectl("get", "steplogs", "-n", TEAM, "-o", "json"))["items"]
        return "".join(
            each["text"]
            for item in found
            if item["spec"]["sandbox"]["name"] == sandbox
            for each in item["spec"]["logs"]
        )

    return eventually(kept, f"the logs of {sandbox}")


@pytest.mark.proof
def test_servers_that_are_shared(operator: Installed):
    """Scripts and their Secrets as they are: PostgreSQL, Redis and NATS on this machine's own address."""
    host = operator.own.network.host
    for image in (stand_ins.postgres(), stand_ins.redis(), stand_ins.python()):
        operator.own.load(image)
    with contextlib.ExitStack() as stack:
        settings = [
            stack.enter_context(start(host)) for start in (external_services.postgres, servers.redis, servers.nats)
        ]
        postgres, redis, nats = settings
        names = {"postgres-database": "PG", "redis-acl": "REDIS_", "nats-stream": "NATS_"}
        for (plugin, prefix), variables in zip(names.items(), settings, strict=True):
            stack.enter_context(given(operator, plugin, **keys(variables, prefix)))
        sandboxes = []
        for name in names:
            plugin, sandbox = wishes_of(name)
            if name == "nats-stream":
                plugin["spec"]["runner"]["image"] = stand_ins.PYTHON
            if (
                name == "postgres-database"
            ):  # psql runs the command after `\\!`, which must find no administrator's password
                sandbox["spec"]["resources"][0]["params"]["seed"] += f"\n\\! {ENVIRONMENTS}\n"
            sandboxes.append(sandbox["metadata"]["name"])
            stack.enter_context(operator.ending(sandboxes[-1], TEAM))
            operator.apply(plugin, sandbox)
        for sandbox in sandboxes:
            operator.wait_ready(sandbox, TEAM)
        told = {
            sandbox: {key: each.decode() for key, each in outputs(operator, sandbox).items()} for sandbox in sandboxes
        }
        with psycopg.connect(told["postgres-database-demo"]["provision.url"]) as connection:
            assert connection.execute("SELECT count(*) FROM customer").fetchone() == (2,)
        seen = log(operator, "postgres-database-demo")
        assert "DAYFLY_RESOURCE_ID=" in seen
        assert servers.PASSWORD not in seen
        user = told["redis-demo"]
        own = {**redis, "REDIS_USER": user["provision.user"], "REDISCLI_AUTH": user["provision.password"]}
        assert gallery.redis(own, f"SET {user['provision.prefix']}x y") == "OK"
        info = gallery.jetstream(nats)(f"STREAM.INFO.{told['nats-demo']['stream.name']}", {})
        assert info["state"]["consumer_count"] == 1
        for sandbox in sandboxes:
            operator.delete(sandbox, TEAM)
        with external_services.connect(postgres) as connection:
            left = "SELECT count(*) FROM pg_roles, pg_database WHERE rolname LIKE 'dayfly%' OR datname LIKE 'dayfly%'"
            assert connection.execute(left).fetchone() == (0,)
        assert gallery.redis({**redis, "REDIS_USER": "eyes"}, "KEYS dayfly*") == ""
        assert gallery.jetstream(nats)("STREAM.NAMES", {})["total"] == 0
    operator.check_nothing_left()


def keys(settings: Mapping[str, str], prefix: str) -> dict[str, str]:
    """The variables of this machine as a Secret has them: PGHOST is `host`."""
    known = {"REDISCLI_AUTH": "password"}
    return {known.get(name, name.removeprefix(prefix).lower()): value for name, value in settings.items()}
