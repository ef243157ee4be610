"""States in a cluster: access, limits and Secrets."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import random
import socket
import ssl
import urllib.error
import urllib.request
from types import SimpleNamespace

import msgspec
import pytest
from tests.execute.states import KEYS, Client
from tests.kube.fake import FakeCluster
from tests.kube.fake.faults import Fault, Harm
from tests.operator.rig.world import KINDS
from tests.ports import free_port

from dayfly.execute.pod import names
from dayfly.execute.pod.render import PodSecretKey
from dayfly.execute.state import access, handler, seal
from dayfly.execute.state.head import DamagedError, Head
from dayfly.execute.state.service import StateOwner
from dayfly.kube import errors
from dayfly.kube.client import KubeClient as Kube
from dayfly.kube.objects import SECRETS, AnnotatedMeta, Key, Secret, untyped_resource
from dayfly.lib import http_server
from dayfly.operator.cluster.objects import RUNS, RunObject, owned_secret
from dayfly.operator.pods.pod_builder import PodBuilder, RefusedPodError
from dayfly.operator.states import authority, bounded_socket, state_secrets, state_server
from dayfly.operator.states.state_access import ForeignTokenError, NoStatesError, StateAccess
from dayfly.operator.states.state_secrets import StateSecrets
from dayfly.plan.sealed import seal as sealed
from dayfly.spec.lifecycle import Exec, Lifecycle, Target, Unit
from dayfly.spec.run import Phase, Run, State, UnitRecord

SYSTEM, RUNNERS = "dayfly-system", names.RUNNERS
TARGET = Target(kind="Sandbox", namespace="team", name="box", uid="u")
APPLY = Unit(name="apply", kind="exec", exec=Exec(script="#!/bin/sh", image="i", state=True))
PLAN = sealed((Lifecycle(target=TARGET, resource="stack", pre_start=(APPLY,)),))
STEP = PLAN.steps["stack/apply"]
LARGE = random.Random(2).randbytes(seal.CHUNK_BYTES + 1000)
SERVICES = untyped_resource("v1", "Service", "services")


def ledger(state: State = State.CLAIMED, **more) -> Run:
    return Run(uid="u", target=TARGET, plan="", units={"stack/apply": UnitRecord(attempt=1, state=state)}, **more)


class Server:
    """A cluster with a Run and two replicas that serve states."""

    def __init__(self) -> None:
        self.cluster = FakeCluster(seed=1, extra=KINDS, time=lambda: 0.0, settles=False)
        self.kube = Kube(self.cluster.transport("operator"), seed=1)
        self.run: RunObject = None
        self.stores = [StateSecrets(self.kube, SYSTEM) for _ in range(2)]
        self.access = StateAccess(self.kube, SYSTEM, 8443)

    async def begin(self) -> Server:
        for name in (SYSTEM, RUNNERS):
            await self.kube.create(
                untyped_resource("v1", "Namespace", "namespaces", namespaced=False), _namespace(name)
            )
        self.run = await self.kube.create(RUNS, RunObject(metadata=AnnotatedMeta(name="box-1"), ledger=ledger()))
        return self

    async def move(self, after: Run) -> None:
        self.run = await self.kube.update(RUNS, msgspec.structs.replace(self.run, ledger=after), "box-1")

    def client(self, store=0, keys=KEYS, **more) -> Client:
        return Client(self.stores[store], keys=keys, run="box-1", **more)

    def secrets(self, kind=state_secrets.TYPE):
        return [each for each in self.cluster.objects("secrets") if each["type"] == kind]

    async def service(self, address="127.0.0.1") -> None:
        meta = {"name": authority.NAME, "namespace": SYSTEM}
        body = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": meta,
            "spec": {"clusterIP": address, "ports": [{"port": 8443}]},
        }
        await self.kube.create(SERVICES, body, SYSTEM)


async def eventually(opened):
    """Open a connection that is not refused: earlier ones have to be closed first."""
    while True:
        with contextlib.suppress(OSError):
            reader, writer = await opened()
            if not reader.at_eof() and not writer.transport.is_closing():
                return reader, writer
        await asyncio.sleep(0.01)


def _namespace(name):
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


@pytest.fixture
async def server():
    return await Server().begin()


class TestKeeping:
    async def test_state_written_by_one_replica_is_read_by_another(self, server):
        first, second = server.client(0), server.client(1)
        assert (await first.lock("a"))[0] == 200
        assert await second.write(LARGE, "a") == 200
        assert await first.read() == LARGE
        kept = server.secrets()
        sizes = [len(base64.b64decode(value)) for each in kept for value in each["data"].values()]
        assert max(sizes) == seal.CHUNK_BYTES
        assert {each["metadata"]["ownerReferences"][0]["uid"] for each in kept} == {server.run.metadata.uid}
        assert [each.get("immutable", False) for each in kept] == ["chunk" in each["data"] for each in kept]

    async def test_one_of_two_concurrent_head_changes_fails(self, server):
        place, before = StateOwner("box-1", "stack"), await server.stores[0].find(StateOwner("box-1", "stack"))
        assert await server.stores[1].swap(place, before, Head(sandbox="1"))
        assert not await server.stores[0].swap(place, before, Head(sandbox="0"))
        before = await server.stores[0].find(place)
        assert await server.stores[1].swap(place, before, Head(sandbox="2"))
        assert not await server.stores[0].swap(place, before, Head(sandbox="0"))
        assert (await server.stores[0].find(place)).head.sandbox == "2"

    async def test_a_run_that_is_gone_takes_nothing(self, server):
        await server.kube.delete(RUNS, "box-1", uid=server.run.metadata.uid)
        place = StateOwner("box-1", "stack")
        assert not await server.stores[0].swap(place, await server.stores[0].find(place), Head())
        assert server.secrets() == []

    @pytest.mark.parametrize("harm", [Harm.LOST_ANSWER, Harm.LOST_REQUEST])
    @pytest.mark.parametrize("which", ["head", "chunk"])
    async def test_write_with_a_lost_answer_is_repeated_once(self, server, harm, which):
        mine = server.client()
        await mine.lock("a")
        hit = []

        def harmed(call):
            body = msgspec.json.decode(call.request.body or b"{}") if call.write is not None else {}
            if not hit and which in body.get("data", {}):
                hit.append(call)
                return Fault(harm)
            return None

        server.cluster.faults = harmed
        assert await mine.write(b"{}", "a") == 503
        assert await mine.write(b"{}", "a") == 200
        assert hit
        assert await mine.read() == b"{}"
        found = await server.stores[0].find(StateOwner("box-1", "stack"))
        assert [version.number for version in found.head.versions] == [1]

    @pytest.mark.parametrize("harm", [Harm.CONFLICT, Harm.UNREACHABLE, Harm.LOST_ANSWER, Harm.LOST_REQUEST])
    @pytest.mark.parametrize("second", [True, False])
    async def test_partially_written_version_leaves_no_chunks(self, server, harm, second):
        """The chunk would stay until the run ends, again with each try, and would count for no limit."""
        mine = server.client()
        await mine.lock("a")
        hit = []

        def harmed(call):
            body = msgspec.json.decode(call.request.body or b"{}") if call.write is not None else {}
            if "chunk" in body.get("data", {}):
                hit.append(call)
            return Fault(harm) if len(hit) == 1 + second and call is hit[-1] else None

        server.cluster.faults = harmed
        for _ in range(2):
            hit.clear()
            with contextlib.suppress(errors.ApiError):
                assert await mine.write(LARGE, "a") == 503
            assert len(hit) == 1 + second
            assert len(server.secrets()) == 1, "the head"
        server.cluster.faults = lambda _: None
        assert await mine.write(LARGE, "a") == 200
        assert await mine.read() == LARGE

    @pytest.mark.parametrize("harm", [Harm.UNREACHABLE, Harm.THROTTLE])
    async def test_version_without_a_written_head_leaves_no_chunks(self, server, harm):
        """The writes certainly changed nothing, so no late head refers to the chunks."""
        mine = server.client()
        await mine.lock("a")

        def harmed(call):
            body = msgspec.json.decode(call.request.body or b"{}") if call.write is not None else {}
            return Fault(harm) if "head" in body.get("data", {}) else None

        server.cluster.faults = harmed
        for _ in range(2):
            with pytest.raises(errors.ApiError):
                await mine.write(LARGE, "a")
            assert len(server.secrets()) == 1, "the head"
        server.cluster.faults = lambda _: None
        assert await mine.write(LARGE, "a") == 200
        assert await mine.read() == LARGE

    @pytest.mark.parametrize("bound", ["MAX_BYTES", "MAX_STATES"])
    async def test_a_namespace_has_so_much_and_no_more(self, server, monkeypatch, bound):
        mine = server.client()
        await mine.lock("a")
        monkeypatch.setattr(state_secrets, "MAX_STATES", 1)
        assert await mine.write(b"first", "a") == 200
        monkeypatch.setattr(state_secrets, bound, 0)
        status, said = await mine.ask("POST", b"second", "a")
        assert (status, b"the sandboxes of namespace team have 1 states" in said) == (413, True)
        assert await mine.read() == b"first"
        assert len(server.secrets()) == 2

    async def test_stored_bytes_count_towards_the_limit(self, server, monkeypatch):
        mine = server.client()
        await mine.lock("a")
        await mine.write(b"first", "a")
        stored = (await server.stores[0].find(StateOwner("box-1", "stack"))).head.stored
        monkeypatch.setattr(state_secrets, "MAX_BYTES", 2 * stored - 1)
        assert await mine.write(b"other", "a") == 413
        monkeypatch.setattr(state_secrets, "MAX_BYTES", 2 * stored)
        assert await mine.write(b"other", "a") == 200
        [head] = [each for each in server.secrets() if state_secrets.STORED in each["metadata"].get("annotations", {})]
        await server.kube.patch(SECRETS, {"metadata": {"annotations": None}}, head["metadata"]["name"], SYSTEM)
        assert await mine.write(b"third", "a") == 200, "a body without a length counts as nothing"

    async def test_older_versions_go_by_uid(self, server, monkeypatch):
        monkeypatch.setattr("dayfly.execute.state.head.MAX_VERSIONS", 2)
        mine = server.client()
        await mine.lock("a")
        for number in range(4):
            assert await mine.write(b"%d" % number, "a") == 200
        assert len(server.secrets()) == 1 + 2
        deletes = [call.request for call in server.cluster.calls if call.request.method == "DELETE"]
        assert deletes
        assert all(msgspec.json.decode(each.body)["preconditions"]["uid"] for each in deletes)

    async def test_only_an_abandoned_run_keeps_its_state(self, server):
        mine = server.client()
        await mine.lock("a")
        await mine.write(b"kept", "a")
        await server.move(ledger(phase=Phase.CLEANED))
        await server.access.end_run(server.run)
        assert all("ownerReferences" in each["metadata"] for each in server.secrets())
        await server.move(ledger(phase=Phase.ABANDONED))
        await server.access.end_run(server.run)
        assert not any(each["metadata"].get("ownerReferences") for each in server.secrets())
        ((place, head),) = (await state_secrets.heads(server.kube, SYSTEM)).items()
        chunks = await state_secrets.chunks(server.kube, SYSTEM, place, head.newest)
        assert (head.sandbox, head.namespace, seal.unseal(KEYS, place, head.newest, chunks)) == ("box", "team", b"kept")

    async def test_a_chunk_that_was_emptied_is_said(self, server):
        """Another user has created the Secret again; an existing one is immutable."""
        mine = server.client()
        await mine.lock("a")
        await mine.write(b"kept", "a")
        [chunk] = [each["metadata"]["name"] for each in server.secrets() if "chunk" in each["data"]]
        await server.kube.delete(SECRETS, chunk, SYSTEM)
        await server.kube.create(SECRETS, {"metadata": {"name": chunk}, "type": state_secrets.TYPE}, SYSTEM)
        status, said = await mine.ask("GET")
        assert (status, b"version 1 of the state of stack is damaged" in said) == (500, True)

    @pytest.mark.parametrize("data", [None, {}, {"head": b"{"}])
    def test_damaged_head_error_names_its_secret(self, data):
        metadata = AnnotatedMeta(name="s", namespace=SYSTEM)
        with pytest.raises(DamagedError, match=f"Secret {SYSTEM}/s"):
            state_secrets.head_of(Secret(metadata=metadata, data=data))


class TestToken:
    async def test_token_secret_exists_only_during_its_attempt(self, server):
        await server.service()
        given = await server.access.environment_for(server.run, STEP, 1)
        assert server.secrets() == []
        for _ in range(2):
            await server.access.grant(server.run, STEP, 1)
        (secret,) = server.secrets()
        assert (secret["metadata"]["namespace"], secret["metadata"]["name"]) == (RUNNERS, given.token.secret)
        assert secret["immutable"] is True
        token = base64.b64decode(secret["data"][given.token.key]).decode()
        keys = (await server.access.authority()).keys
        who = access.identify(keys, "/state/box-1/stack", given.variables["TF_HTTP_USERNAME"], token)
        assert who == access.state_caller("box-1", "stack", "stack/apply", 1)
        await server.access.revoke(server.run, "stack/apply", 2, RUNNERS)
        assert len(server.secrets()) == 1
        await server.access.revoke(server.run, "stack/apply", 1, RUNNERS)
        assert server.secrets() == []
        [gone] = [call.request for call in server.cluster.calls if call.request.method == "DELETE"]
        assert msgspec.json.decode(gone.body)["preconditions"]["uid"] == secret["metadata"]["uid"]

    async def test_token_secret_without_owner_is_rejected(self, server):
        await server.service()
        await server.access.grant(server.run, STEP, 1)
        [secret] = server.secrets()
        patch = {"metadata": {"ownerReferences": None}}
        await server.kube.patch(SECRETS, patch, secret["metadata"]["name"], RUNNERS)
        with pytest.raises(ForeignTokenError):
            await server.access.grant(server.run, STEP, 1)

    async def test_token_secret_with_a_wrong_token_is_rejected(self, server):
        await server.service()
        key = Key(RUNNERS, (await server.access.environment_for(server.run, STEP, 1)).token.secret)
        await server.kube.create(
            SECRETS, owned_secret(server.run, key, state_secrets.TYPE, {"token": b"other"}), RUNNERS
        )
        with pytest.raises(ForeignTokenError, match=f"Secret {key} does not belong to Dayfly; delete it"):
            await server.access.grant(server.run, STEP, 1)

    async def test_foreign_secret_of_that_name_is_neither_used_nor_removed(self, server):
        await server.service()
        name = (await server.access.environment_for(server.run, STEP, 1)).token.secret
        meta = {"name": name, "namespace": RUNNERS}
        data = {"token": base64.b64encode(b"theirs").decode()}
        await server.kube.create(SECRETS, {"metadata": meta, "type": "Opaque", "data": data}, RUNNERS)
        with pytest.raises(ForeignTokenError, match=f"Secret {RUNNERS}/{name} does not belong to Dayfly; delete it"):
            await server.access.grant(server.run, STEP, 1)
        await server.access.revoke(server.run, "stack/apply", 1, RUNNERS)
        assert len(server.secrets("Opaque")) == 1

    async def test_all_replicas_have_one_authority(self, server):
        found = await asyncio.gather(*(authority.load(server.kube, SYSTEM) for _ in range(3)))
        assert len({each.certificate for each in found}) == len({each.keys.name for each in found}) == 1

    async def test_altered_authority_secret_is_reported(self, server):
        meta = {"name": authority.NAME, "namespace": SYSTEM}
        await server.kube.create(SECRETS, {"metadata": meta, "data": {"key": "AAAA"}}, SYSTEM)
        with pytest.raises(NoStatesError, match="Secret dayfly-system/dayfly-state cannot be used: the key for states"):
            await server.access.authority()

    @pytest.mark.parametrize(
        ("address", "url"),
        [
            ("127.0.0.7", "https://127.0.0.7:8443/state/box-1/stack"),
            ("fd00::7", "https://[fd00::7]:8443/state/box-1/stack"),
            ("None", "https://dayfly-state.dayfly-system.svc:8443/state/box-1/stack"),
        ],
    )
    async def test_the_address_is_that_of_the_service(self, server, address, url):
        await server.service(address)
        assert (await server.access.environment_for(server.run, STEP, 1)).variables["TF_HTTP_ADDRESS"] == url

    async def test_missing_state_service_names_the_remedy(self, server):
        with pytest.raises(NoStatesError, match=r"kubectl apply --server-side -f deploy/install\.yaml"):
            await server.access.environment_for(server.run, STEP, 1)


class TestPod:
    def builder(self, server, states):
        async def grant_for(*_):
            return SimpleNamespace(level="restricted", keys=frozenset())

        cluster = SimpleNamespace(now=lambda: 0, services=[], client=server.kube)
        runner = SimpleNamespace(name="r", architecture="amd64")
        return PodBuilder(cluster, SimpleNamespace(grant_for=grant_for), runner, None, states, traced=False)

    async def test_no_pod_has_the_token_in_it(self, server, monkeypatch):
        monkeypatch.setattr("dayfly.operator.pods.pod_builder.fork_evaluator", lambda *_: None)
        monkeypatch.setattr("dayfly.operator.pods.pod_builder.input_pins.pin_label", lambda *_: "")
        await server.service()
        made = await self.builder(server, server.access).build(server.run, PLAN, ("stack/apply", 1), {})
        keys = (await server.access.authority()).keys
        text = str(made)
        assert access.derive_password(keys, access.state_caller("box-1", "stack", "stack/apply", 1)) not in text
        order = made["metadata"]["annotations"][names.ORDER_ANNOTATION]
        assert "TF_HTTP_ADDRESS=https://127.0.0.1:8443/state/box-1/stack" in order
        assert "sensitive-env" in order
        token = (await server.access.environment_for(server.run, STEP, 1)).token
        assert isinstance(token, PodSecretKey)
        (source,) = made["spec"]["volumes"][0]["projected"]["sources"][2:]
        assert source == {"secret": {"name": token.secret, "items": [{"key": token.key, "path": "in/0"}]}}

    async def test_an_operator_without_states_makes_none(self, server, monkeypatch):
        monkeypatch.setattr("dayfly.operator.pods.pod_builder.fork_evaluator", lambda *_: None)
        monkeypatch.setattr("dayfly.operator.pods.pod_builder.input_pins.pin_label", lambda *_: "")
        with pytest.raises(RefusedPodError, match="the operator does not serve states: start it with --state-port"):
            await self.builder(server, None).build(server.run, PLAN, ("stack/apply", 1), {})


async def answers(port: int) -> None:
    """Wait until the port accepts connections."""
    async with asyncio.timeout(30):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0)  # a real socket has no event for this
            else:
                writer.close()
                return


class TestServer:
    @pytest.fixture
    async def url(self, server):
        await server.service()
        port = free_port()
        async with state_server.serve_states(server.access, port, lambda: 0):
            await answers(port)
            yield f"https://127.0.0.1:{port}/state/box-1/stack"

    async def test_a_port_that_is_taken_is_tried_again(self, server, monkeypatch):
        refused = asyncio.Event()
        monkeypatch.setattr(state_server.log, "warning", lambda *_: refused.set())
        monkeypatch.setattr(state_server, "CHECK_INTERVAL_S", 0.05)
        await server.service()
        with socket.create_server(("", 0)) as taken:
            port = taken.getsockname()[1]
            async with state_server.serve_states(server.access, port, lambda: 0):
                async with asyncio.timeout(30):
                    await refused.wait()
                taken.close()
                await answers(port)

    def ask(self, url, context, told, method="GET", body=None):
        given = base64.b64encode(f"apply.1:{told}".encode()).decode()
        request = urllib.request.Request(url, body, {"Authorization": f"Basic {given}"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=20, context=context) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    @pytest.mark.parametrize("small", [1 << 20, 100])
    async def test_server_uses_the_authority_and_admits_only_known_tokens(self, server, url, monkeypatch, small):
        monkeypatch.setattr(handler, "MAX_BODY", 1000)
        monkeypatch.setattr(handler, "SMALL_BODY", small)
        known = await server.access.authority()
        trusting = ssl.create_default_context(cadata=known.certificate.decode())
        token = access.derive_password(known.keys, access.state_caller("box-1", "stack", "stack/apply", 1))

        async def asked(*words):
            return await asyncio.to_thread(self.ask, url, trusting, *words)

        assert (await asked(token))[0] == 404
        assert (await asked(token, "LOCK", b'{"ID":"a"}'))[0] == 200
        assert (await asked("wrong"))[0] == 401
        assert (await asyncio.to_thread(self.ask, f"{url}?ID=a", trusting, token, "POST", b"x" * 1000))[0] == 200
        assert (await asyncio.to_thread(self.ask, f"{url}?ID=a", trusting, token, "POST", b"x" * 1001))[0] == 413
        assert await asked(token) == (200, b"x" * 1000)
        await server.move(ledger(State.DONE))
        assert [(await asked(token))[0], (await asked(token, "LOCK", b'{"ID":"a"}'))[0]] == [403, 423]
        with pytest.raises(urllib.error.URLError, match="certificate verify failed"):
            await asyncio.to_thread(self.ask, url, ssl.create_default_context(), token)

    async def test_slow_large_body_delays_no_other_request(self, server, url, monkeypatch):
        monkeypatch.setattr(handler, "SMALL_BODY", 100)
        known = await server.access.authority()
        trusting = ssl.create_default_context(cadata=known.certificate.decode())
        token = access.derive_password(known.keys, access.state_caller("box-1", "stack", "stack/apply", 1))
        host, port = url.split("/")[2].split(":")
        given = base64.b64encode(f"apply.1:{token}".encode()).decode()
        head = f"POST /state/box-1/stack?ID=a HTTP/1.1\r\nHost: x\r\nAuthorization: Basic {given}\r\nContent-Length: 500\r\n\r\n"
        readers = []
        for _ in range(3):
            reader, writer = await asyncio.open_connection(host, port, ssl=trusting)
            writer.write(head.encode() + b"x" * 200)
            readers.append((reader, writer))
        told = {asyncio.create_task(reader.readline()) for reader, _ in readers}
        # One body of a run is read at a time; the others are refused at once.
        done: set = set()
        while len(done) < 2:
            done, _ = await asyncio.wait(told, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.sleep(0)
        assert {task.result() for task in done} == {b"HTTP/1.1 503 Service Unavailable\r\n"}
        assert (await asyncio.to_thread(self.ask, url, trusting, token, "LOCK", b'{"ID":"a"}'))[0] == 200
        for _, writer in readers:
            writer.write(b"x" * 300)
        await asyncio.wait(told)
        assert b"HTTP/1.1 200 OK\r\n" in {task.result() for task in told}
        for _, writer in readers:
            writer.close()

    async def test_silent_connections_are_closed_and_limited_per_client(self, url, monkeypatch):
        monkeypatch.setattr(bounded_socket, "MAX_CONNECTIONS_PER_ADDRESS", 3)
        port = int(url.split(":")[2].split("/")[0])
        careless = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        careless.check_hostname, careless.verify_mode = False, ssl.CERT_NONE

        async def opened():
            return await asyncio.open_connection("127.0.0.1", port, ssl=careless)

        silent = [await eventually(opened) for _ in range(3)]
        for _ in range(2):
            with pytest.raises((ConnectionError, ssl.SSLError)):  # one more than the limit for an address
                await opened()
        # An incomplete head is invalid.
        silent[0][1].write(b"GET / HTTP/1.1\r\nX: ")
        monkeypatch.setattr(http_server, "HEAD_S", 0.05)
        for _, writer in silent:
            writer.close()
        reader, writer = await eventually(opened)
        writer.write(b"GET / HTTP/1.1\r\nX: ")
        with contextlib.suppress(ConnectionResetError):
            assert (await reader.read()).startswith(b"HTTP/1.1 408 ")
        writer.close()

    async def test_unavailable_api_server_is_answered_503_and_retried(self, server, url, monkeypatch):
        monkeypatch.setattr(handler, "ANSWER_TIMEOUT_S", 0.2)
        known = await server.access.authority()
        trusting = ssl.create_default_context(cadata=known.certificate.decode())
        token = access.derive_password(known.keys, access.state_caller("box-1", "stack", "stack/apply", 1))
        server.cluster.faults = lambda _call: Fault(Harm.TROUBLE_BEFORE)
        assert (await asyncio.to_thread(self.ask, url, trusting, token))[0] == 503
        server.cluster.faults = lambda _call: None
        monkeypatch.setattr(handler, "ANSWER_TIMEOUT_S", 60)
        assert (await asyncio.to_thread(self.ask, url, trusting, token))[0] == 404
