"""Objects that steps make, on a real server: with whose rights, by which grant, and under which policies."""

import asyncio
import json
import shlex
import ssl
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest
from tests.deploy.conftest import OPERATOR, WRITTEN, thing
from tests.kube.fake import FakeCluster
from tests.kube.fake.kinds import Kind
from tests.policy.apiserver import AUDITED, eventually

from dayfly.execute.object import read
from dayfly.execute.object.render import ObjectIdentity, release_patch, render_object
from dayfly.execute.object.run import ACCOUNT, EXTRA, NotServedError, ObjectClient, account
from dayfly.kube import errors
from dayfly.kube.client import KubeClient
from dayfly.kube.transport import HttpTransport, KubeRequest
from dayfly.operator.objects import grants
from dayfly.spec.steps.kube_object import KubeObject

T = TypeVar("T")
pytestmark = WRITTEN

TEAM = AUDITED
OWNER = {"apiVersion": "v1", "kind": "Namespace", "name": TEAM, "uid": "", "blockOwnerDeletion": False}
CONTAINER = {"name": "a", "image": "x"}
JOB = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [CONTAINER]}}},
}
MAP = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"}}


class Token:
    """The operator's own account, as its pod has it."""

    proxy = None
    server_name = None

    def __init__(self, installed, token):
        self.server = f"https://{installed.cluster.network.node}:6443"
        self.tls = ssl.create_default_context(cafile=str(installed.cluster.folder / "pki" / "ca.crt"))
        self.token = token

    async def header(self):
        return f"Bearer {self.token}"

    async def renew(self):
        return False


@pytest.fixture(scope="module")
def token(installed):
    installed.ask("POST", "/api/v1/namespaces", thing("v1", "Namespace", TEAM))
    return installed.cluster.kubectl("create", "token", "dayfly-operator", "-n", "dayfly-system").strip()


@pytest.fixture
def play(installed, token) -> Callable[[Callable[[ObjectClient, KubeClient], Awaitable[None]]], None]:
    def played(story):
        async def main():
            client = KubeClient(HttpTransport(Token(installed, token)))
            try:
                await story(ObjectClient(client), client)
            finally:
                await client.close()

        asyncio.run(main())

    return played


def sent(installed, manifest, unit):
    uid = installed.ask("GET", f"/api/v1/namespaces/{TEAM}").body["metadata"]["uid"]
    identity = ObjectIdentity("run-uid", unit, 1, TEAM, OWNER | {"uid": uid})
    return render_object(KubeObject(manifest=manifest), {}, (), identity)


async def refused(doing: Awaitable[object]) -> errors.Forbidden:
    try:
        await doing
    except errors.Forbidden as error:
        return error
    raise AssertionError("was not refused")


async def said_by_the_fake(name):
    """The same request, refused by the server that other tests of objects have."""
    fake = FakeCluster(extra=[Kind("batch", "v1", "jobs", "Job")], time=lambda: 0.0)
    objects = ObjectClient(KubeClient(fake.transport()))
    fake.answer(KubeRequest("POST", "/api/v1/namespaces", {}, json.dumps({"metadata": {"name": TEAM}}).encode()))
    return (await refused(objects.find(await objects.discover_kind("batch/v1", "Job"), name, TEAM))).message


def type_the_line(installed, error):
    """Run the command of the message literally."""
    said = grants.explain_refusal(error, TEAM, 0)
    assert said.reason == "ObjectsNotGranted"
    for command in said.message.rpartition("can run: ")[2].split(" && "):
        kubectl, *words = shlex.split(command)
        assert kubectl == "kubectl"
        installed.cluster.kubectl(*words)


def asked(installed):
    """Yield impersonated user, verb and status code of the operator's requests for jobs, from the audit log."""
    for line in installed.cluster.audit_log.read_text().splitlines():
        event = json.loads(line)
        if event["objectRef"]["resource"] == "jobs" and event["user"]["username"] == OPERATOR:
            as_whom = event.get("impersonatedUser", {})
            yield as_whom, event["verb"], event["responseStatus"].get("code", 0)


async def granted(ask: Callable[[], Awaitable[T]]) -> T:
    """Return the answer once the server knows the permission. Its cache of Roles is updated after an unknown time."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await ask()
            except errors.Forbidden:
                await asyncio.sleep(0.1)


def test_a_life_by_the_line_that_the_refusal_says(installed, play):
    """The life of a Job with only the account's permissions: refused, granted, created suspended, released, deleted."""

    async def story(objects: ObjectClient, client: KubeClient) -> None:
        kind = await objects.discover_kind("batch/v1", "Job")
        manifest = sent(installed, JOB, "db/job")
        name = manifest["metadata"]["name"]
        error = await refused(objects.find(kind, name, TEAM))
        assert error.message == await said_by_the_fake(name)
        type_the_line(installed, error)
        await granted(lambda: objects.dry_run(kind, manifest))
        assert await objects.find(kind, name, TEAM) is None
        made = await objects.create(kind, manifest)
        assert made["spec"]["suspend"] is True
        with pytest.raises(errors.AlreadyExists):
            await objects.create(kind, manifest)
        patch = release_patch(JOB, made)
        assert patch is not None
        stranger = {**made, "metadata": {**made["metadata"], "uid": "another"}}
        await objects.patch(kind, stranger, {**patch, "metadata": {**patch["metadata"], "uid": "another"}})
        await objects.delete(kind, stranger)
        await objects.patch(kind, made, patch)
        found = await objects.find(kind, name, TEAM)
        assert found is not None
        assert found["spec"]["suspend"] is False
        assert release_patch(JOB, found) is None
        await objects.delete(kind, found)
        assert (await refused(client.find(kind, name, TEAM))).is_not_granted, "the operator itself may not even look"

    play(story)
    eventually(lambda: ({}, "get", 403) in asked(installed))  # the last of them; the log is written a moment later
    entries = list(asked(installed))
    assert {verb for _, verb, code in entries if code < 300} == {"get", "create", "patch", "delete"}
    assert {(code, verb) for whom, verb, code in entries if not whom} == {(403, "get")}
    for whom in [whom for whom, _, _ in entries if whom]:
        assert whom["username"] == account(TEAM)
        assert whom["extra"] == {key: [value] for key, value in EXTRA.items()}
        assert "system:serviceaccounts" in whom["groups"]


def test_only_the_account_sets_and_removes_its_finalizer(installed, play):
    async def story(objects: ObjectClient, _client: KubeClient) -> None:
        kind = await objects.discover_kind("v1", "ConfigMap")
        manifest = sent(installed, MAP, "db/map")
        name = manifest["metadata"]["name"]
        type_the_line(installed, await refused(objects.find(kind, name, TEAM)))
        made = await granted(lambda: objects.create(kind, manifest))
        path = f"/api/v1/namespaces/{TEAM}/configmaps"
        words = "metadata.finalizers: those of dayfly.dev/ are set and removed by the Dayfly operator alone"
        merge = "application/merge-patch+json"
        bare = {"metadata": {"finalizers": None}}
        for user in ("", account(TEAM)):  # neither is the operator
            answer = installed.ask("PATCH", f"{path}/{name}", bare, user=user, kind=merge)
            assert (answer.status, words in answer.message) == (403, True), answer.message
        await objects.delete(kind, made)
        async with asyncio.timeout(60):
            found = await objects.find(kind, name, TEAM)
            while found is not None and read.foreign_finalizers(
                found
            ):  # the collector looks whether it has made anything
                await asyncio.sleep(0.1)
                found = await objects.find(kind, name, TEAM)
        assert found is not None
        assert read.is_ending(found)
        await objects.remove_finalizer(kind, found)
        await objects.remove_finalizer(kind, found)
        assert await objects.find(kind, name, TEAM) is None

    play(story)


def test_no_label_of_ours_comes_in_by_that_way(installed, play):
    async def story(objects: ObjectClient, _client: KubeClient) -> None:
        kind = await objects.discover_kind("batch/v1", "Job")
        manifest = sent(installed, JOB, "db/labelled")
        manifest["spec"]["template"]["metadata"] = {"labels": {"dayfly.dev/run": "r"}}
        error = await refused(objects.dry_run(kind, manifest))
        assert "the prefix dayfly.dev/ is reserved for the Dayfly operator" in error.message

    play(story)


def test_unsupported_and_cluster_scoped_kinds_are_distinguished(play):
    async def story(objects: ObjectClient, _client: KubeClient) -> None:
        for version, kind, scope in (("v1", "Node", True), ("v1", "Nothing", False), ("no.example.org/v1", "X", False)):
            with pytest.raises(NotServedError) as caught:
                await objects.discover_kind(version, kind)
            assert caught.value.scope is scope

    play(story)


@pytest.mark.parametrize(
    ("resource", "name", "allowed"),
    [
        ({"resource": "serviceaccounts", "namespace": TEAM}, ACCOUNT, True),
        ({"resource": "serviceaccounts", "namespace": TEAM}, "default", False),
        ({"resource": "serviceaccounts", "namespace": "dayfly-system"}, "dayfly-operator", False),
        ({"resource": "users"}, "admin", False),
        ({"resource": "groups"}, "system:masters", False),
        ({"resource": "uids"}, "x", False),
        ({"resource": "userextras", "subresource": next(iter(EXTRA)), "group": "authentication.k8s.io"}, "true", True),
        ({"resource": "userextras", "subresource": "scopes", "group": "authentication.k8s.io"}, "true", False),
    ],
)
def test_operator_may_impersonate_exactly_the_object_accounts(installed, resource, name, allowed):
    who = {"user": "system:serviceaccount:dayfly-system:dayfly-operator", "groups": ["system:serviceaccounts"]}
    asked = {"spec": {**who, "resourceAttributes": {"verb": "impersonate", "name": name, **resource}}}
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", **asked}
    eventually(lambda: installed.ask("POST", path, body).body["status"]["allowed"] is allowed)
