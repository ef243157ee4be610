"""The errors of the client about the outcome of requests."""

from __future__ import annotations

import asyncio
import contextlib
from urllib.parse import quote, unquote

import msgspec
import pytest
from tests.kube.fake import Crash, FakeCluster, Fault, Harm, Refusal, at_write, custom, run, serving

from dayfly.kube import answers, errors
from dayfly.kube.cache import Cache
from dayfly.kube.client import KubeClient, Limits
from dayfly.kube.forms import Propagation, Style
from dayfly.kube.objects import PODS, SECRETS, Key, untyped_resource
from dayfly.kube.reflector import Reflector
from dayfly.kube.transport import Answer, HttpTransport, KubeRequest, Stream

RUNS = untyped_resource("dayfly.dev/v1alpha1", "Run", "runs", namespaced=False)
DEPLOYMENTS = untyped_resource("apps/v1", "Deployment", "deployments")
RUN_KIND = custom("dayfly.dev", "v1alpha1", "runs", "Run", namespaced=False, status=False)


def secret(name: str = "s", **more) -> dict:
    return {"metadata": {"name": name, **more}, "data": {"a": "YQ=="}}


def pod(name: str, *gates: str) -> dict:
    spec = {"containers": [{"name": "main", "image": "i"}], "schedulingGates": [{"name": gate} for gate in gates]}
    return {"metadata": {"name": name}, "spec": spec}


def played(main):
    """Run a story with a client of a new cluster, in virtual time."""

    async def story():
        cluster = FakeCluster(extra=[RUN_KIND])
        return await main(cluster, KubeClient(cluster.transport(), seed=1))

    return run(story())


CHANGES = {
    "create": lambda client: client.create(SECRETS, secret("new"), "default"),
    "update": lambda client: client.update(SECRETS, secret(labels={"x": "y"}), "s", "default"),
    "patch": lambda client: client.patch(SECRETS, {"metadata": {"labels": {"x": "y"}}}, "s", "default"),
    "delete": lambda client: client.delete(SECRETS, "s", "default"),
}
OUTCOMES = [
    (Harm.LOST_REQUEST, errors.OutcomeUnknown, False),
    (Harm.LOST_ANSWER, errors.OutcomeUnknown, True),
    (Harm.TROUBLE_BEFORE, errors.OutcomeUnknown, False),
    (Harm.TROUBLE_AFTER, errors.OutcomeUnknown, True),
    (Harm.UNREACHABLE, errors.ServerError, False),
    (Harm.THROTTLE, errors.Throttled, False),
    (Harm.CONFLICT, errors.Conflict, False),
    (Harm.CRASH_BEFORE, Crash, False),
    (Harm.CRASH_AFTER, Crash, True),
]


class TestChanges:
    @pytest.mark.parametrize(("harm", "family", "executed"), OUTCOMES)
    @pytest.mark.parametrize("verb", CHANGES)
    def test_each_fault_has_its_cause_and_nothing_is_sent_twice(self, verb, harm, family, executed):
        """A change is sent once in any case, and the error states only what is certain."""

        async def main(cluster, client):
            await client.create(SECRETS, secret(), "default")
            version = cluster.store.version
            cluster.faults = at_write(2, harm)
            with pytest.raises(family) as raised:
                await CHANGES[verb](client)
            assert family is type(raised.value)
            assert cluster.writes == 2
            assert executed is (cluster.store.version > version)

        played(main)

    @pytest.mark.parametrize("body", [b"<html>", b'{"metadata": {"name": "\xe9"}}'])
    def test_an_answer_in_prose_is_unknown(self, body):
        """A change with a 2xx response was executed, even if the body cannot be read."""

        class Garbled:
            async def send(self, request):
                return Answer(201, body)

        with pytest.raises(errors.OutcomeUnknown):
            run(KubeClient(Garbled()).create(SECRETS, secret(), "default"))

    def test_a_deadline_makes_a_change_unknown(self):
        """A timeout is not a failure."""

        async def main(cluster, _client):
            transport = cluster.transport()
            transport.latency = 60.0
            client = KubeClient(transport)
            with pytest.raises(errors.OutcomeUnknown):
                await client.create(SECRETS, secret(), "default")
            assert asyncio.get_running_loop().time() == 30.0

        played(main)

    def test_guards(self):
        """UID and version in a body or in arguments of `delete` make the change conditional."""

        async def main(cluster, client):
            made = await client.create(SECRETS, secret(), "default")
            wrong = "00000000-0000-0000-0000-000000000000"
            with pytest.raises(errors.Conflict):
                await client.patch(SECRETS, {"metadata": {"uid": wrong, "labels": {"x": "y"}}}, "s", "default")
            with pytest.raises(errors.Conflict):
                await client.update(SECRETS, secret(resourceVersion="1"), "s", "default")
            with pytest.raises(errors.Conflict):
                await client.delete(SECRETS, "s", "default", uid=wrong)
            with pytest.raises(errors.Conflict):
                await client.delete(SECRETS, "s", "default", resource_version="1")
            assert made == await client.get(SECRETS, "s", "default")
            await client.delete(SECRETS, "s", "default", uid=made.metadata.uid)
            with pytest.raises(errors.NotFound):
                await client.get(SECRETS, "s", "default")

        played(main)

    def test_missing_object_is_none_but_unserved_kind_is_an_error(self):
        async def main(cluster, client):
            made = await client.create(SECRETS, secret(), "default")
            assert await client.find(SECRETS, "other", "default") is None
            taken = cluster.forget("secrets")
            with pytest.raises(errors.NotServed):
                await client.find(SECRETS, "s", "default")
            cluster.serve(taken)
            assert await client.find(SECRETS, "s", "default") == made

        played(main)

    def test_dry_runs_change_nothing(self):
        """Each verb has a dry run, with the same errors."""

        async def main(cluster, client):
            await client.create(SECRETS, secret(), "default")
            before = cluster.store.version
            await client.create(SECRETS, secret("other"), "default", dry_run=True)
            changed = await client.patch(SECRETS, {"metadata": {"labels": {"x": "y"}}}, "s", "default", dry_run=True)
            assert changed.metadata.labels == {"x": "y"}
            await client.delete(SECRETS, "s", "default", dry_run=True)
            assert before == cluster.store.version

        played(main)

    def test_refusals_by_cause(self):
        """Each 4xx has its own class, and the causes name fields."""

        async def main(cluster, client):
            await client.create(SECRETS, secret(), "default")
            with pytest.raises(errors.AlreadyExists):
                await client.create(SECRETS, secret(), "default")
            with pytest.raises(errors.Invalid) as invalid:
                await client.create(SECRETS, secret("NO"), "default")
            assert [cause.field for cause in invalid.value.causes] == ["metadata.name"]
            with pytest.raises(errors.NotFound):
                await client.create(SECRETS, secret(), "nowhere")
            with pytest.raises(errors.Refused) as unsupported:
                await client.patch(RUNS, {}, "x", style=Style.STRATEGIC)
            assert unsupported.value.status == 415
            cluster.admission.append(lambda *_: (_ for _ in ()).throw(Refusal(403, "policy says no")))
            with pytest.raises(errors.Forbidden, match="policy says no") as forbidden:
                await client.create(SECRETS, secret("t"), "default")
            assert not forbidden.value.is_namespace_ending

        played(main)

    @pytest.mark.parametrize("code", [422, 403, 429, 500])
    def test_long_message_keeps_its_beginning_and_end(self, code):
        """A server repeats refused values, and a webhook may send any text; statuses and ledgers have limits."""
        whole = f'Job "j" is invalid: spec.template: Invalid value: {"x" * 100_000}: field is immutable'
        answer = Answer(code, msgspec.json.encode({"kind": "Status", "reason": "Invalid", "message": whole}))
        said = answers.error_of_response(KubeRequest("PUT", "/x"), answer, changes=True).message
        assert len(said) == answers.MAX_MESSAGE_CHARS
        assert said.startswith('Job "j" is invalid: spec.template: Invalid value: xxx')
        assert said.endswith("xxx: field is immutable")
        assert " [...] " in said

    @pytest.mark.parametrize(
        ("said", "not_granted"),
        [
            ('pods "a" is forbidden: User "x y" cannot get resource "pods" in API group "" in the namespace "n"', True),
            ('forbidden: pods is forbidden: User "u" cannot list resource "pods" at the cluster scope', True),
            ('admission webhook "w" denied the request: you cannot do that', False),
            ('pods "a" is forbidden: exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2', False),
            (
                'pods "a" is forbidden: unable to create new content in namespace n because it is being terminated',
                False,
            ),
        ],
    )
    def test_missing_right_is_distinguished_from_other_refusals(self, said, not_granted):
        assert errors.Forbidden("GET x", said, status=403).is_not_granted is not_granted

    def test_evictions_and_scales(self):
        """An eviction against a disruption budget delays no other request; a scale is bound to the UID."""

        async def main(cluster, client):
            made = await client.create(PODS, pod("p"), "default")
            cluster.refuses = lambda _: Refusal(
                429, "Cannot evict pod as it would violate the pod's disruption budget."
            )
            with pytest.raises(errors.Throttled):
                await client.evict("p", "default", uid=made.metadata.uid)
            cluster.refuses = lambda _: None
            template = {"metadata": {"labels": {"a": "b"}}, "spec": pod("p")["spec"]}
            spec = {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": template}
            await client.create(DEPLOYMENTS, {"metadata": {"name": "d"}, "spec": spec}, "default")
            assert asyncio.get_running_loop().time() == 0.0, "a budget of one pod delays no other request"
            await client.evict("p", "default", uid=made.metadata.uid)
            assert cluster.objects("pods") == []
            uid = cluster.objects("deployments")[0]["metadata"]["uid"]
            await client.scale(DEPLOYMENTS, "d", "default", 3, uid=uid)
            assert cluster.objects("deployments")[0]["spec"]["replicas"] == 3
            with pytest.raises(errors.Conflict):
                await client.scale(DEPLOYMENTS, "d", "default", 1, uid="00000000-0000-0000-0000-000000000000")

        played(main)

    def test_propagation(self):
        """Foreground waits for dependents, orphans stay."""

        async def main(cluster, client):
            about = {"apiVersion": RUNS.api_version, "kind": RUNS.kind}
            owner = await client.create(RUNS, about | {"metadata": {"name": "r"}}, "")
            reference = about | {"name": "r", "uid": owner["metadata"]["uid"]}
            await client.create(SECRETS, secret(ownerReferences=[reference]), "default")
            await client.delete(RUNS, "r", propagation=Propagation.ORPHAN)
            assert cluster.objects("runs") == []
            assert len(cluster.objects("secrets")) == 1

        played(main)

    def test_deletes_pass_first_when_the_pace_is_limited(self):
        """Waiting deletes are served before creates."""

        async def main():
            cluster = FakeCluster()
            client = KubeClient(cluster.transport(), Limits(rate=1.0, burst=1))
            await client.create(SECRETS, secret(), "default")
            makes = [asyncio.create_task(client.create(SECRETS, secret(f"n{n}"), "default")) for n in range(5)]
            await asyncio.sleep(0)
            await client.delete(SECRETS, "s", "default")
            assert [call.number for call in cluster.calls] == [1, 2]
            assert cluster.calls[1].request.method == "DELETE"
            await asyncio.gather(*makes)
            assert pytest.approx(asyncio.get_running_loop().time(), abs=0.1) == 6.0

        run(main())

    def test_delete_requests_only_metadata(self):
        """The response is not read."""

        async def main(cluster, client):
            await client.create(SECRETS, secret(), "default")
            await client.delete(SECRETS, "s", "default")
            assert ["as=PartialObjectMetadata;" in call.request.accept for call in cluster.calls] == [False, True]

        played(main)

    def test_the_pace_has_a_deadline(self):
        """A request that waits too long for the rate limit reports that nothing was sent."""

        async def main():
            cluster = FakeCluster()
            client = KubeClient(cluster.transport(), Limits(rate=0.01, burst=1, timeout=5.0))
            await client.create(SECRETS, secret(), "default")
            with pytest.raises(errors.Throttled):
                await client.create(SECRETS, secret("t"), "default")
            assert cluster.writes == 1

        run(main())


NAMES = ["a b", "a?watch=1", "a#b", "a\nb", "\u00e9", "*", "a&b", "a;b", "a\\b", "a+b", "a" * 5_000]
NO_SEGMENTS = ["..", ".", "a/b", "../b", "/", "a%2fb", "%2e%2e", "a/secrets/b"]
KNOWN = {"", "api", "apis", "x", "v1", "namespaces", "default", "things", "s"}
VERBS = {
    "get": lambda client, name, namespace: client.get(SECRETS, name, namespace),
    "update": lambda client, name, namespace: client.update(SECRETS, secret(), name, namespace),
    "patch": lambda client, name, namespace: client.patch(SECRETS, {}, name, namespace),
    "delete": lambda client, name, namespace: client.delete(SECRETS, name, namespace),
    "evict": lambda client, name, namespace: client.evict(name, namespace),
    "log": lambda client, name, namespace: anext(client.log(name, namespace, container="main")),
}


class TestPaths:
    @pytest.mark.parametrize("name", NAMES)
    @pytest.mark.parametrize("verb", VERBS)
    def test_names_are_single_encoded_segments(self, verb, name):
        async def main(cluster, client):
            with pytest.raises(errors.NotFound):
                await VERBS[verb](client, name, name)
            [path] = {call.request.path for call in cluster.calls}
            assert path.split("/")[4] == path.split("/")[6] == quote(name)

        played(main)

    @pytest.mark.parametrize("name", NO_SEGMENTS)
    @pytest.mark.parametrize("verb", VERBS)
    def test_text_that_cannot_be_a_name_is_never_sent(self, verb, name):
        """The API server decodes a path before it splits it, so encoding does not help."""

        async def main(cluster, client):
            for place in ((name, "default"), ("s", name)):
                with pytest.raises(errors.NotFound, match="cannot be a name"):
                    await VERBS[verb](client, *place)
            assert cluster.calls == []

        played(main)

    @pytest.mark.parametrize("verb", VERBS)
    def test_an_empty_name_is_never_sent(self, verb):
        """The path without a name is that of all objects of the kind."""

        async def main(cluster, client):
            for place in (("", "default"), ("s", "")):
                with pytest.raises(errors.Invalid):
                    await VERBS[verb](client, *place)
            assert cluster.calls == []

        played(main)

    @pytest.mark.parametrize("text", ["", *NO_SEGMENTS, "*"])
    def test_kinds_with_hostile_names_are_not_served(self, text):
        kinds = [
            untyped_resource(f"{text or '.'}/v1", "Thing", "things"),
            untyped_resource(f"x/{text}", "Thing", "things"),
        ]
        kinds += [untyped_resource("x/v1", "Thing", text)]

        async def main(cluster, client):
            for kind in kinds:
                with pytest.raises(errors.NotServed):
                    await client.get(kind, "s", "default")
                with pytest.raises(errors.NotServed):
                    await client.list_all(kind, "default")
            for api_version in (f"{text}/v1", f"x/{text}"):
                with pytest.raises(errors.NotServed):
                    await client.kinds(api_version)
            assert {"*"} >= {part for call in cluster.calls for part in unquote(call.request.path).split("/")} - KNOWN

        played(main)


class TestReads:
    def test_reads_are_repeated_until_the_deadline(self):
        """Three errors in a row are survived; a server that never answers ends in a timeout."""

        async def main(cluster, client):
            await client.create(SECRETS, secret(), "default")
            harms = [Harm.UNREACHABLE, Harm.LOST_ANSWER, Harm.TROUBLE_BEFORE]
            cluster.faults = lambda call: Fault(harms[call.number - 2]) if 2 <= call.number <= 4 else None
            assert (await client.get(SECRETS, "s", "default")).metadata.name == "s"
            assert len(cluster.calls) == 5
            cluster.faults = lambda _: Fault(Harm.UNREACHABLE)
            with pytest.raises(errors.ServerError):
                await client.get(SECRETS, "s", "default")
            assert 20 < asyncio.get_running_loop().time() < 35

        played(main)

    def test_a_throttled_server_is_left_alone(self):
        """After a 429, no request of this client is sent before Retry-After."""

        async def main(cluster, client):
            cluster.faults = lambda call: Fault(Harm.THROTTLE, retry_after=7) if call.number == 1 else None
            with pytest.raises(errors.Throttled) as throttled:
                await client.create(SECRETS, secret(), "default")
            assert throttled.value.retry_after == 7.0
            await client.create(SECRETS, secret(), "default")
            assert pytest.approx(asyncio.get_running_loop().time(), abs=0.01) == 7.0

        played(main)

    def test_throttling_by_one_webhook_delays_no_other_request(self):
        """An extension may answer 429 for its own kind, for example for one tenant."""

        async def main(cluster, client):
            cluster.refuses = lambda _: Refusal(429, 'admission webhook "w" denied the request: come back later')
            with pytest.raises(errors.Throttled, match="come back later"):
                await client.create(SECRETS, secret(), "default")
            cluster.refuses = lambda _: None
            await client.create(SECRETS, secret(), "default")
            assert asyncio.get_running_loop().time() == 0.0

        played(main)

    @pytest.mark.parametrize(("status", "family"), [(429, errors.Throttled), (503, errors.OutcomeUnknown)])
    def test_malformed_proxy_answer_is_an_api_error(self, status, family):
        """Any other exception would end the watches and the process."""
        said = Answer(status, b'{"message": "acc\xe8s refus\xe9"}', {"retry-after": "\xb2"})
        fault = answers.error_of_response(KubeRequest("POST", "/x"), said, changes=True)
        assert type(fault) is family
        assert "refus" in str(fault)
        assert getattr(fault, "retry_after", 1.0) == 1.0

    def test_throttling_pauses_at_most_thirty_seconds(self):
        """A proxy in front of the server may request any time."""

        async def main(cluster, client):
            cluster.faults = lambda call: Fault(Harm.THROTTLE, retry_after=3600) if call.number == 1 else None
            with pytest.raises(errors.Throttled) as throttled:
                await client.create(SECRETS, secret(), "default")
            assert throttled.value.retry_after == 3600.0
            await asyncio.sleep(30)
            await client.create(SECRETS, secret(), "default")
            assert pytest.approx(asyncio.get_running_loop().time(), abs=0.01) == 30.0

        played(main)

    def test_lists_come_in_pages_at_one_version(self):
        """Writes between pages are not visible; an expired version starts the list again."""

        async def main(cluster, client):
            for number in range(7):
                await client.create(SECRETS, secret(f"s{number}"), "default")
            listing = await client.list_all(SECRETS, limit=3)
            assert [f"s{number}" for number in range(7)] == [item.metadata.name for item in listing.items]
            page = await client.page(SECRETS, limit=3)
            await client.delete(SECRETS, "s5", "default")
            rest = await client.page(SECRETS, limit=10, continue_=page.metadata.continue_)
            assert [item.metadata.name for item in rest.items] == ["s3", "s4", "s5", "s6"]
            compactions = iter([True])

            def compact(call):
                if "continue" in call.request.query and next(compactions, None):
                    cluster.store.version += 1
                    cluster.store.compact()

            cluster.faults = compact
            assert len((await client.list_all(SECRETS, limit=3)).items) == 6

        played(main)

    def test_selectors(self):
        """Labels and fields select on the server."""

        async def main(cluster, client):
            for number in range(3):
                await client.create(SECRETS, secret(f"s{number}", labels={"n": str(number)}), "default")

            async def found(**query):
                return [item.metadata.name for item in (await client.list_all(SECRETS, **query)).items]

            assert await found(labels="n=1") == ["s1"]
            assert await found(labels="n!=1") == ["s0", "s2"]
            assert await found(labels="n in (0, 1)") == ["s0", "s1"]
            assert await found(labels="n,n notin (0,1)") == ["s2"]
            assert await found(fields="metadata.name=s0") == ["s0"]
            assert await found(labels="!n") == []

        played(main)

    def test_a_log_is_followed_to_its_end(self):
        """Pieces arrive as they are written."""

        async def main(cluster, client):
            await client.create(PODS, pod("p"), "default")
            log = cluster.log_of("p", "default")

            async def kubelet():
                for piece in (b"one\n", b"two\n"):
                    await asyncio.sleep(1)
                    log.write(piece)
                log.write(b"", ended=True)

            writing = asyncio.create_task(kubelet())
            pieces = [piece async for piece in client.log("p", "default", container="main", follow=True)]
            assert pieces == [b"", b"one\n", b"two\n"]
            await writing
            with pytest.raises(errors.NotFound):
                await anext(client.log("q", "default", container="main"))

        played(main)

    def test_a_stream_that_is_refused_and_never_explained_ends(self):
        """A connection may become silent after the head of the response; a watch without timeout would hang."""

        class Silent:
            @contextlib.asynccontextmanager
            async def stream(self, request):
                async def chunks():
                    await asyncio.Event().wait()
                    yield b""

                yield Stream(410, chunks())

        async def main():
            async with KubeClient(Silent()).stream(KubeRequest("GET", "/x", timeout=30.0)):
                pass

        async def timed():
            async with asyncio.timeout(3600):
                with pytest.raises(errors.Gone):
                    await main()
            assert asyncio.get_running_loop().time() == 30.0

        run(timed())

    def test_a_secret_is_not_shown(self):
        """`repr` shows only the keys."""

        async def main(cluster, client):
            return repr(await client.create(SECRETS, secret(), "default"))

        shown = played(main)
        assert shown == "Secret(default/s, keys=['a'])"


class TestHttp:
    async def test_a_cut_connection_is_never_sent_again(self):
        """Aiohttp itself would repeat a PUT on a pooled connection; our own change would then look like a conflict."""
        cluster = FakeCluster()
        async with serving(cluster) as address:
            client = KubeClient(HttpTransport(Plain(address)))
            try:
                made = await client.create(SECRETS, secret(), "default")
                cluster.faults = at_write(2, Harm.LOST_ANSWER)
                with pytest.raises(errors.OutcomeUnknown):
                    await client.update(
                        SECRETS,
                        secret(resourceVersion=made.metadata.resource_version, labels={"x": "y"}),
                        "s",
                        "default",
                    )
                assert cluster.writes == 2
                assert (await client.get(SECRETS, "s", "default")).metadata.labels == {"x": "y"}
                cluster.faults = at_write(3, Harm.LOST_REQUEST)
                with pytest.raises(errors.OutcomeUnknown):
                    await client.delete(SECRETS, "s", "default")
                assert cluster.store.get(cluster.kind("secrets"), Key("default", "s"))
            finally:
                await client.close()

    async def test_impersonating_client_has_only_the_other_rights(self):
        cluster = FakeCluster()
        async with serving(cluster) as address:
            client = KubeClient(HttpTransport(Plain(address)))
            ada = client.acting_as("ada", {"example.org/why": "a b"})
            try:
                with pytest.raises(errors.Forbidden, match='User "ada" cannot create resource "secrets"') as caught:
                    await ada.create(SECRETS, secret(), "default")
                assert caught.value.is_not_granted
                await client.create(SECRETS, secret(), "default")
                cluster.rights.add(("ada", "get", "secrets"))
                assert (await ada.get(SECRETS, "s", "default")).metadata.name == "s"
                assert cluster.calls[-1].request.headers == {
                    "Impersonate-User": "ada",
                    "Impersonate-Extra-example.org%2Fwhy": "a b",
                }
                await client.get(SECRETS, "s", "default")
                assert cluster.calls[-1].request.headers == {}
            finally:
                await client.close()

    async def test_served_kinds_are_listed(self):
        cluster = FakeCluster()
        client = KubeClient(cluster.transport())
        served = {each.name: (each.kind, each.namespaced) for each in await client.kinds("apps/v1")}
        assert served["deployments"] == ("Deployment", True)
        assert "deployments/status" in served
        assert ("Node", False) in [(each.kind, each.namespaced) for each in await client.kinds("v1")]
        with pytest.raises(errors.NotServed):
            await client.kinds("no.example.org/v1")

    async def test_refused_connection_is_known_as_not_sent(self):
        """A refused connection proves that nothing was sent."""
        client = KubeClient(HttpTransport(Plain("http://127.0.0.1:1")))
        with pytest.raises(errors.ServerError, match="nothing was sent"):
            await client.create(SECRETS, secret(), "default")
        await client.close()

    async def test_fresh_credentials_after_a_401(self):
        """A 401 proves that nothing was executed, so the change is sent again with another token."""
        sent = []

        class Tokens(Plain):
            token = "old"

            async def header(self):
                sent.append(self.token)
                return f"Bearer {self.token}"

            async def renew(self):
                was, self.token = self.token, "new"
                return was != self.token

        cluster = FakeCluster()
        async with serving(cluster) as address:
            client = KubeClient(HttpTransport(Tokens(address)))
            answer = cluster.answer
            cluster.answer = lambda request, *rest: (
                Refusal(401, "Unauthorized").answer()
                if sent[-1] == "old" or request.method == "GET"
                else answer(request, *rest)
            )
            try:
                await client.create(SECRETS, secret(), "default")
                assert sent == ["old", "new"]
                with pytest.raises(errors.Unauthorized):
                    await client.get(SECRETS, "s", "default")
            finally:
                await client.close()

    async def test_watches_and_logs_over_a_socket(self):
        """A cache follows over broken streams, and a log arrives piece by piece."""
        cluster = FakeCluster()
        async with serving(cluster) as address:
            client = KubeClient(HttpTransport(Plain(address)))
            reflector = Reflector(client, SECRETS, Cache())
            arrived = asyncio.Queue()
            reflector.cache.listen(arrived.put_nowait)
            task = asyncio.create_task(reflector.run())
            try:
                await reflector.wait_synced()
                writer = KubeClient(cluster.transport())
                cluster.faults = lambda call: Fault(Harm.BREAK, after=1) if call.client == "http" else None
                for number in range(3):
                    await writer.create(SECRETS, secret(f"s{number}"), "default")
                    async with asyncio.timeout(20):
                        assert (await arrived.get()).key.name == f"s{number}"
                cluster.faults = lambda call: None
                await writer.create(PODS, pod("p"), "default")
                cluster.log_of("p", "default").write(b"one\n")
                async with contextlib.aclosing(client.log("p", "default", container="main", follow=True)) as log:
                    assert [await anext(log), await anext(log)] == [b"", b"one\n"]
                    cluster.log_of("p", "default").write(b"two\n")
                    assert await anext(log) == b"two\n"
            finally:
                task.cancel()
                await asyncio.wait([task])
                await client.close()
                cluster.log_of("p", "default").write(b"", ended=True)


class Plain:
    """No credentials."""

    tls = server_name = proxy = None

    def __init__(self, server: str) -> None:
        self.server = server

    async def header(self):
        return None

    async def renew(self):
        return False
