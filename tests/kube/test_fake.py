"""Features of the fake cluster that simulators need, beyond the comparison with a real server."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from tests.kube.fake import Crash, DeadlockError, FakeCluster, Harm, at_random, at_write, custom, run

from dayfly.kube import errors
from dayfly.kube.client import KubeClient
from dayfly.kube.forms import Style
from dayfly.kube.objects import PODS, SECRETS, untyped_resource
from dayfly.kube.transport import KubeRequest

RUNS = untyped_resource("dayfly.dev/v1alpha1", "Run", "runs", namespaced=False)
RUN_KIND = custom("dayfly.dev", "v1alpha1", "runs", "Run", namespaced=False, status=False)


def ledger(**spec) -> dict:
    return {"apiVersion": "dayfly.dev/v1alpha1", "kind": "Run", "metadata": {"name": "r"}, "spec": spec}


def pod(*gates: str, **metadata) -> dict:
    spec = {"containers": [{"name": "main", "image": "i"}], "schedulingGates": [{"name": gate} for gate in gates]}
    return {"metadata": {"name": "p", **metadata}, "spec": spec}


def bind(cluster) -> int:
    """Bind the pod as the scheduler does, and return the status of the response."""
    body = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}}
    path = "/api/v1/namespaces/default/pods/p/binding"
    return cluster.answer(KubeRequest("POST", path, {}, msgspec.json.encode(body))).status


class TestGates:
    def test_a_gated_pod_cannot_be_bound(self):
        """Fencing: no binding while gated, gates cannot be added again, graceful end once bound."""

        async def main():
            cluster = FakeCluster()
            client = KubeClient(cluster.transport())
            made = await client.create(PODS, pod("x/claim", finalizers=["x/keep"]), "default")
            assert bind(cluster) == 409
            ungate = {"metadata": {"uid": made.metadata.uid}, "spec": {"schedulingGates": None}}
            await client.patch(PODS, ungate, "p", "default")
            with pytest.raises(errors.Invalid):
                await client.patch(PODS, {"spec": {"schedulingGates": [{"name": "x/claim"}]}}, "p", "default")
            assert bind(cluster) == 200
            await client.delete(PODS, "p", "default")
            dying = await client.get(PODS, "p", "default")
            assert dying.metadata.deletion_grace_period_seconds == 30
            await client.delete(PODS, "p", "default", grace=0)
            held = await client.get(PODS, "p", "default")
            assert held.metadata.finalizers == ["x/keep"]
            await client.patch(PODS, {"metadata": {"finalizers": None}}, "p", "default")
            with pytest.raises(errors.NotFound):
                await client.get(PODS, "p", "default")

        run(main())


class TestViews:
    def test_frozen_client_reads_old_data_and_conflicts_on_writes(self):
        """The frozen client's reads are stale, and its compare-and-swap fails."""

        async def main():
            cluster = FakeCluster(extra=[RUN_KIND])
            old, new = cluster.transport("old"), KubeClient(cluster.transport("new"))
            past = KubeClient(old)
            await new.create(RUNS, ledger(n=1))
            old.freeze()
            await new.patch(RUNS, {"spec": {"n": 2}}, "r")
            seen = await past.get(RUNS, "r")
            assert seen["spec"] == {"n": 1}
            assert (await past.list_all(RUNS)).items == [seen]
            with pytest.raises(errors.Conflict):
                await past.update(RUNS, seen | {"spec": {"n": 9}}, "r")
            old.thaw()
            assert (await past.get(RUNS, "r"))["spec"] == {"n": 2}

        run(main())

    def test_stale_reads_by_hook(self):
        """One read is answered with an older version."""

        async def main():
            cluster = FakeCluster(extra=[RUN_KIND])
            client = KubeClient(cluster.transport())
            await client.create(RUNS, ledger(n=1))
            await client.patch(RUNS, {"spec": {"n": 2}}, "r")
            hook = at_random(0, 1.0, (Harm.STALE,))
            cluster.faults = lambda call: msgspec_lag(hook(call))
            assert (await client.get(RUNS, "r"))["spec"] == {"n": 1}

        def msgspec_lag(fault):
            import dataclasses

            return dataclasses.replace(fault, lag=1)

        run(main())


class TestCrashes:
    def test_a_crash_ends_the_client_for_good(self):
        """No handler in the client runs after it, and its transport is dead; another client starts."""

        async def main():
            cluster = FakeCluster()
            cluster.faults = at_write(1, Harm.CRASH_AFTER)
            client = KubeClient(cluster.transport("a"))

            async def life():
                try:
                    await client.create(SECRETS, {"metadata": {"name": "s"}}, "default")
                except Exception as caught:
                    raise AssertionError("caught a crash") from caught

            task = asyncio.create_task(life())
            await asyncio.wait([task])
            assert isinstance(task.exception(), Crash)
            with pytest.raises(Crash):
                await client.get(SECRETS, "s", "default")
            assert (await KubeClient(cluster.transport("b")).get(SECRETS, "s", "default")).metadata.name == "s"

        run(main())


class TestApply:
    def test_owners_of_fields(self):
        """Omitted fields are dropped; fields of other managers are refused without force, and kept if shared."""

        async def main():
            cluster = FakeCluster(extra=[RUN_KIND])
            client = KubeClient(cluster.transport())

            async def apply(manager, force=False, **spec):
                return await client.patch(RUNS, ledger(**spec), "r", style=Style.APPLY, manager=manager, force=force)

            await apply("one", a=1, b=1, deep={"x": 1, "y": 1})
            await apply("two", b=1, c=1)
            assert (await apply("one", a=1))["spec"] == {"a": 1, "b": 1, "c": 1}
            with pytest.raises(errors.Conflict):
                await apply("one", a=1, c=2)
            assert (await apply("one", force=True, a=1, c=2))["spec"]["c"] == 2
            with pytest.raises(errors.Conflict):
                await apply("two", b=1, c=1)
            before = cluster.store.version
            await apply("one", a=1, c=2)
            assert cluster.store.version == before

        run(main())


class TestDeterminism:
    def test_same_seed_same_answers(self):
        """UIDs, names, versions, times and faults are reproducible."""

        def story() -> bytes:
            async def main():
                cluster = FakeCluster(7)
                cluster.faults = at_random(7, 0.3, (Harm.LOST_ANSWER, Harm.CONFLICT))
                client = KubeClient(cluster.transport(), seed=7)
                for _ in range(20):
                    try:
                        await client.create(SECRETS, {"metadata": {"generateName": "s-"}}, "default")
                    except errors.ApiError:
                        await asyncio.sleep(1)
                return msgspec.json.encode([cluster.objects("secrets"), len(cluster.calls)])

            return run(main())

        assert story() == story()

    def test_waiting_for_nothing_is_found(self):
        """A story in which all tasks wait forever ends with an error, not with the timeout of the test."""
        with pytest.raises(DeadlockError):
            run(asyncio.Event().wait())
