"""Secrets with outputs: which ones are kept, replaced, or belong to another program."""

from __future__ import annotations

import base64
import hashlib
from types import SimpleNamespace

import msgspec
import pytest
from tests.kube.fake import FakeCluster
from tests.operator.rig.world import KINDS

from dayfly.execute.pod import names
from dayfly.execute.pod.logs import PrintedOutput
from dayfly.execute.work_order import CannotRenderError
from dayfly.kube import errors
from dayfly.kube.client import KubeClient
from dayfly.kube.objects import NAMESPACES, SECRETS, AnnotatedMeta
from dayfly.operator.cluster.objects import RunObject, resource_name, run_owner_reference
from dayfly.operator.outputs import resource_secrets
from dayfly.operator.outputs.attempt_secrets import AttemptSecrets, ForeignSecretError, outputs_secret, verified_values
from dayfly.operator.outputs.log_outputs import FIRST_RETRY_MS, GIVE_UP_AFTER_MS, LogOutputs, LogWait
from dayfly.operator.outputs.resource_secrets import ResourceSecrets, write_resource_secret
from dayfly.plan.reasons import Reason
from dayfly.plan.world import Unread
from dayfly.spec.lifecycle import Exec, Lifecycle, Target, Unit
from dayfly.spec.run import OutputRecord, Result, Run, State, UnitRecord

TARGET = Target(kind="Sandbox", namespace="shop", name="box", uid="u")
RUNNERS = names.RUNNERS
PLACE = RUNNERS, "db/make", 1
UNIT = Unit(name="make", kind="exec", exec=Exec(script="#!/bin/sh"))
DOCUMENT = Lifecycle(target=TARGET, resource="db", pre_start=(UNIT,))


def result(**values: bytes) -> Result:
    digests = {name: "sha256:" + hashlib.sha256(value).hexdigest() for name, value in values.items()}
    outputs = {name: OutputRecord(digest=digest, size=1, attempt=1) for name, digest in digests.items()}
    return Result(outcome="succeeded", outputs=outputs)


def a_run(uid: str = "r", **values: bytes) -> RunObject:
    record = UnitRecord(state=State.DONE, attempt=1, outputs=result(**values).outputs)
    ledger = Run(uid="u", target=TARGET, plan="", units={"db/make": record})
    return RunObject(metadata=AnnotatedMeta(name="box", uid=uid), ledger=ledger)


RUN = a_run(url=b"db://1")


class Server:
    """A server with both namespaces, and its requests."""

    def __init__(self) -> None:
        self.cluster = FakeCluster(seed=1, extra=KINDS, time=lambda: 0.0, settles=False)
        self.client = KubeClient(self.cluster.transport("operator"), seed=1)

    async def secret(self, name: str, namespace: str, run: RunObject | None, **values: bytes) -> None:
        body = outputs_secret(run or RUN, namespace, name, values)
        if run is None:
            body["metadata"].pop("ownerReferences")
        if not values:
            body.pop("data")
        await self.client.create(SECRETS, body, namespace)

    def data(self, name: str) -> dict[str, bytes]:
        [found] = [each for each in self.cluster.objects("secrets") if each["metadata"]["name"] == name]
        return {key: base64.b64decode(value) for key, value in found.get("data", {}).items()}

    def changes(self) -> list[str]:
        return [call.request.method for call in self.cluster.calls if call.write is not None]


@pytest.fixture
async def server():
    made = Server()
    for name in (RUNNERS, "shop"):
        await made.client.create(NAMESPACES, {"metadata": {"name": name}})
    made.cluster.calls.clear()
    return made


NAME = names.outputs_name("u", "db/make", 1)


class TestAttempts:
    async def keep(self, server, **values: bytes) -> None:
        await AttemptSecrets(server.client).write(
            RUN, PLACE, result(**values), values, PrintedOutput(b"log", 3, ((0, 5), (2, 9)))
        )

    async def test_they_lie_in_a_secret_with_the_end_of_the_log(self, server):
        await self.keep(server, url=b"db://1")
        assert server.data(NAME) == {"url": b"db://1", "log.tail": b"log", "log.times": b"0 5 2 9"}

    async def test_existing_outputs_secret_is_left_unchanged(self, server):
        await server.secret(NAME, RUNNERS, None, url=b"db://1")
        server.cluster.calls.clear()
        await self.keep(server, url=b"db://1")
        assert server.changes() == ["POST"], "it was refused"
        assert server.data(NAME) == {"url": b"db://1"}

    @pytest.mark.parametrize("values", [{}, {"url": b"other"}])
    async def test_one_of_ours_without_them_is_replaced_as_that_very_one(self, server, values):
        await server.secret(NAME, RUNNERS, RUN, **values)
        server.cluster.calls.clear()
        await self.keep(server, url=b"db://1")
        assert server.data(NAME) == {"url": b"db://1", "log.tail": b"log", "log.times": b"0 5 2 9"}
        [body] = [call.request.body for call in server.cluster.calls if call.request.method == "DELETE"]
        assert msgspec.json.decode(body)["preconditions"]["uid"]

    async def test_outputs_secret_of_another_owner_is_kept(self, server):
        await server.secret(NAME, RUNNERS, a_run("another"), url=b"other")
        with pytest.raises(ForeignSecretError, match="delete it"):
            await self.keep(server, url=b"db://1")
        assert server.data(NAME) == {"url": b"other"}

    async def test_unknown_outcome_without_the_secret_is_an_error(self, server):
        async def lost(*_arguments):
            raise errors.OutcomeUnknown("POST", "no answer came")

        server.client.create = lost
        with pytest.raises(errors.OutcomeUnknown):
            await self.keep(server, url=b"db://1")

    async def test_they_are_recalled_byte_for_byte_or_not_at_all(self, server):
        outputs = AttemptSecrets(server.client)
        assert await outputs.find_values(RUN, PLACE, result(url=b"db://1")) is None
        await server.secret(NAME, RUNNERS, RUN, url=b"db://1", other=b"x")
        assert await outputs.find_values(RUN, PLACE, result(url=b"db://1")) == {"url": b"db://1"}
        assert await outputs.find_values(RUN, PLACE, result(url=b"db://2")) is None

    async def test_output_that_differs_from_its_record_is_lost(self, server):
        outputs = AttemptSecrets(server.client)
        await server.secret(NAME, RUNNERS, RUN, url=b"db://1")
        assert await outputs.read(RUN, RUNNERS, "db/make", "url") == b"db://1"
        for run in (a_run(url=b"db://2"), a_run(other=b"x")):
            [output] = run.ledger.unit("db/make").outputs
            with pytest.raises(CannotRenderError, match="the outputs of db/make is missing or was changed") as lost:
                await outputs.read(run, RUNNERS, "db/make", output)
            assert lost.value.reason == Reason.OUTPUTS_LOST

    async def test_an_empty_secret_has_none(self, server):
        await server.secret(NAME, RUNNERS, RUN)
        assert await AttemptSecrets(server.client).find_values(RUN, PLACE, result(url=b"db://1")) is None
        assert await AttemptSecrets(server.client).find_values(RUN, PLACE, result()) == {}

    def test_empty_output_differs_from_a_missing_one(self):
        assert verified_values({"empty": b""}, result(empty=b"")) == {"empty": b""}
        assert verified_values({}, result(empty=b"")) is None


class TestBindings:
    async def test_all_are_bound_in_the_sandboxs_namespace_once(self, server):
        await server.secret(NAME, RUNNERS, RUN, url=b"db://1")
        name = resource_name(RUN, "db")
        assert await write_resource_secret(server, RUN, DOCUMENT, "shop") == name
        assert server.data(name) == {"make.url": b"db://1"}
        before = len(server.changes())
        assert await write_resource_secret(server, RUN, DOCUMENT, "shop") == name
        assert len(server.changes()) == before

    async def test_run_without_outputs_has_no_binding(self, server):
        assert await write_resource_secret(server, a_run(), DOCUMENT, "shop") == ""
        assert server.cluster.calls == []

    async def test_outputs_that_are_gone_are_said(self, server):
        with pytest.raises(CannotRenderError, match="is missing or was changed"):
            await write_resource_secret(server, RUN, DOCUMENT, "shop")
        assert "POST" not in server.changes()
        await server.secret(NAME, RUNNERS, RUN)
        with pytest.raises(CannotRenderError, match="is missing or was changed"):
            await write_resource_secret(server, RUN, DOCUMENT, "shop")

    @pytest.mark.parametrize("meanwhile", [True, False])
    async def test_binding_name_of_another_owner_is_reported(self, server, meanwhile):
        """Before our read, or between our read and our write."""
        name = resource_name(RUN, "db")
        await server.secret(NAME, RUNNERS, RUN, url=b"db://1")
        if meanwhile:
            create = server.client.create

            async def late(*arguments):
                server.client.create = create
                await server.secret(name, "shop", None, url=b"theirs")
                return await create(*arguments)

            server.client.create = late
        else:
            await server.secret(name, "shop", None, url=b"theirs")
        with pytest.raises(CannotRenderError, match="does not belong to Dayfly"):
            await write_resource_secret(server, RUN, DOCUMENT, "shop")
        assert server.data(name) == {"url": b"theirs"}

    async def test_a_peer_that_was_quicker_has_made_ours(self, server):
        name = resource_name(RUN, "db")
        await server.secret(NAME, RUNNERS, RUN, url=b"db://1")
        create = server.client.create

        async def late(*arguments):
            await create(*arguments)
            return await create(*arguments)

        server.client.create = late
        assert await write_resource_secret(server, RUN, DOCUMENT, "shop") == name

    async def test_refusing_namespace_is_retried_after_its_pause(self, monkeypatch):
        clock, asked = [1_000], []

        async def forbidden(*_arguments):
            asked.append(clock[0])
            raise errors.Forbidden("GET", "not granted", status=403, reason="Forbidden")

        monkeypatch.setattr(errors.Forbidden, "is_not_granted", True)
        monkeypatch.setattr(resource_secrets, "write_resource_secret", forbidden)
        found = ResourceSecrets(SimpleNamespace(now=lambda: clock[0], client=None))
        for now in (1_000, 10_999, 11_000):
            clock[0] = now
            assert await found.ensure(RUN, DOCUMENT) == ""
        assert asked == [1_000, 11_000]


class TestLogs:
    """Large outputs in a log that cannot be read for a while."""

    class Pods:
        def __init__(self) -> None:
            self.asked = 0
            self.answer: dict[str, bytes] | Exception | None = errors.ServerError("GET", "no", status=500)

        async def read_outputs(self, _pod, _digest):
            self.asked += 1
            if isinstance(self.answer, Exception):
                raise self.answer
            return self.answer

    async def test_unread_log_is_retried_with_backoff_then_given_up(self):
        clock, pods, wait = [10_000], self.Pods(), LogWait()
        outputs = LogOutputs(pods, lambda: clock[0])
        waited = []
        while isinstance(found := await outputs.read(None, "d", wait), Unread):
            assert (found.since, found.message) == (10_000, "no")
            waited.append(round(outputs.seconds_until_read(wait) * 1000))
            assert isinstance(await outputs.read(None, "d", wait), Unread)
            assert pods.asked == len(waited), "not before its time"
            clock[0] += waited[-1]
        assert found == {}
        assert waited[0] == FIRST_RETRY_MS + 1
        assert waited == sorted(waited)
        assert waited[-1] <= 60_001
        assert clock[0] >= 10_000 + GIVE_UP_AFTER_MS

    async def test_log_is_read_again_at_its_time(self):
        clock, pods, wait = [10_000], self.Pods(), LogWait()
        outputs = LogOutputs(pods, lambda: clock[0])
        for now, asked in ((10_000, 1), (10_000 + FIRST_RETRY_MS - 1, 1), (10_000 + FIRST_RETRY_MS, 2)):
            clock[0] = now
            await outputs.read(None, "d", wait)
            assert pods.asked == asked

    async def test_clock_set_back_does_not_delay_the_log(self):
        clock, pods, wait = [10_000], self.Pods(), LogWait()
        outputs = LogOutputs(pods, lambda: clock[0])
        for now in (10_000, 9_999):
            clock[0] = now
            assert (await outputs.read(None, "d", wait)).since == now
        assert pods.asked == 2

    async def test_its_last_moment_is_the_end(self):
        clock, pods, wait = [10_000], self.Pods(), LogWait()
        outputs = LogOutputs(pods, lambda: clock[0])
        await outputs.read(None, "d", wait)
        clock[0] = 10_000 + GIVE_UP_AFTER_MS
        assert await outputs.read(None, "d", wait) == {}

    @pytest.mark.parametrize(("answer", "found"), [(None, {}), ({"url": b"x"}, {"url": b"x"})])
    async def test_available_outputs_are_read_from_the_log(self, answer, found):
        pods, wait = self.Pods(), LogWait()
        pods.answer = answer
        outputs = LogOutputs(pods, lambda: 5)
        assert await outputs.read(None, "d", wait) == found
        assert outputs.seconds_until_read(wait) == 0.001


def test_a_secret_of_outputs_goes_with_its_run():
    assert outputs_secret(RUN, "shop", "n", {})["metadata"]["ownerReferences"] == [run_owner_reference(RUN)]
