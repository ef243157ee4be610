"""Leader election: one leader, a takeover, and no leader after its time."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from tests.kube.fake import FakeCluster, FakeTransport, Fault, Harm, run

from dayfly.kube.client import KubeClient
from dayfly.kube.lease import Elector, LeaseTerms, run_election
from dayfly.kube.objects import LEASES
from dayfly.kube.transport import Answer, KubeRequest


def elector(
    cluster: FakeCluster, identity: str, terms: LeaseTerms | None = None, transport: FakeTransport | None = None
) -> Elector:
    client = KubeClient(transport or cluster.transport(identity), seed=1)
    return Elector(client, "lead", "default", identity, terms, seed=sum(identity.encode()))


class Pausing(FakeTransport):
    """A transport that can be paused: until it continues, no request ends."""

    paused = False

    async def send(self, request: KubeRequest) -> Answer:
        while self.paused:
            try:
                await asyncio.sleep(1)
            except asyncio.CancelledError:
                if not self.paused:
                    raise
        return await super().send(request)


def now() -> float:
    return asyncio.get_running_loop().time()


class TestElection:
    def test_leader_releases_its_lease_at_the_end(self):
        """Another process takes over within two rounds, without waiting for the lease to expire."""

        async def main():
            cluster = FakeCluster()
            async with run_election(elector(cluster, "b-late")) as second:
                await asyncio.sleep(0.1)
                async with run_election(elector(cluster, "c")) as third:
                    await asyncio.sleep(30)
                    assert second.is_leading
                    assert not third.is_leading
            spec = cluster.objects("leases")[0]["spec"]
            assert spec["holderIdentity"] == ""
            async with run_election(elector(cluster, "d")) as fourth:
                started = now()
                await fourth.wait_leading()
                assert now() - started < 5
                assert cluster.objects("leases")[0]["spec"]["leaseTransitions"] == 1

        run(main())

    @pytest.mark.parametrize("terms", [LeaseTerms(), LeaseTerms.for_duration(5)], ids=["usual", "short"])
    def test_a_dead_leader_is_followed_after_the_duration(self, terms):
        """Not before the lease has expired for its rivals, and soon after."""

        async def main():
            cluster = FakeCluster()
            first = elector(cluster, "a", terms)
            task = asyncio.create_task(first.run())
            await first.wait_leading()
            async with run_election(elector(cluster, "b", terms)) as second:
                await asyncio.sleep(10)
                died = now()
                cluster.faults = lambda call: Fault(Harm.UNREACHABLE) if call.client == "a" else None
                await second.wait_leading()
                took = now() - died
                assert not first.is_leading, "two lead at once"
                assert terms.duration - terms.every * 1.5 < took < terms.duration + terms.every * 3
                cluster.faults = lambda call: None
                await asyncio.sleep(60)
                assert second.is_leading
                assert not first.is_leading
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

        run(main())

    def test_a_leader_that_cannot_renew_stops_in_time(self):
        """Reads succeed, but writes are lost: it leads only until its last renewal expires, and never beside another
        leader.
        """

        async def main():
            cluster = FakeCluster()
            first = elector(cluster, "a")
            async with run_election(first):
                await first.wait_leading()
                async with run_election(elector(cluster, "b")) as second:
                    await asyncio.sleep(10)
                    cluster.faults = lambda call: (
                        Fault(Harm.LOST_REQUEST) if call.client == "a" and call.write else None
                    )
                    begin = now()
                    while not second.is_leading:
                        await asyncio.sleep(0.1)
                        assert not (first.is_leading and second.is_leading)
                        assert not first.is_leading or now() - begin < LeaseTerms().renew_within
                    await asyncio.sleep(5)
                    assert not first.is_leading

        run(main())

    def test_elector_without_a_server_never_leads(self):
        """A standby process without a server stays on standby."""

        async def main():
            cluster = FakeCluster()
            cluster.faults = lambda call: Fault(Harm.UNREACHABLE)
            async with run_election(elector(cluster, "a")) as first:
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(60):
                        await first.wait_leading()

        run(main())

    def test_overtaken_leader_does_not_release_the_lease(self):
        """The old leader was paused, another process is the leader, and the old one stops before it reads the Lease
        again.
        """

        async def main():
            cluster = FakeCluster()
            transport = Pausing(cluster, "a")
            first = elector(cluster, "a", transport=transport)
            task = asyncio.create_task(first.run())
            await first.wait_leading()
            transport.paused = True
            async with run_election(elector(cluster, "b")) as second:
                await second.wait_leading()
                transport.paused = False
                task.cancel()
                writes = len(cluster.calls)
                await asyncio.wait([task])
                assert any(call.client == "a" for call in cluster.calls[writes:]), "it reads the Lease"
                assert cluster.objects("leases")[0]["spec"]["holderIdentity"] == "b"

        run(main())

    def test_two_simultaneous_candidates_elect_one_leader(self):
        """Both have read the Lease of a dead leader, and both write: the second write has an old version."""

        async def main():
            cluster = FakeCluster()
            dead = {"spec": {"holderIdentity": "dead", "leaseDurationSeconds": 15}}
            await KubeClient(cluster.transport()).create(LEASES, {"metadata": {"name": "lead"}} | dead, "default")
            transports = {name: cluster.transport(name) for name in ("ab", "ba")}
            for transport in transports.values():
                transport.latency = 0.05
            # With the same jitter.
            one, two = (elector(cluster, name, transport=transport) for name, transport in transports.items())
            async with run_election(one), run_election(two):
                led = 0
                for _ in range(600):
                    await asyncio.sleep(0.1)
                    assert not (one.is_leading and two.is_leading)
                    led += one.is_leading or two.is_leading
                assert led > 300

        run(main())

    def test_lost_answers_harm_nothing(self):
        """Half of all writes lose their responses: there is never more than one leader, and always one again."""

        async def main():
            cluster = FakeCluster()
            cluster.faults = lambda call: Fault(Harm.LOST_ANSWER) if call.write and call.write % 2 else None
            async with run_election(elector(cluster, "a")) as a, run_election(elector(cluster, "b")) as b:
                led = 0
                for _ in range(600):
                    await asyncio.sleep(0.5)
                    assert not (a.is_leading and b.is_leading)
                    led += a.is_leading or b.is_leading
                assert led > 500

        run(main())

    def test_times_are_for_people(self):
        """The Lease is readable and keeps its acquisition time."""

        async def main():
            cluster = FakeCluster()
            async with run_election(elector(cluster, "a")) as first:
                await first.wait_leading()
                before = (await KubeClient(cluster.transport()).get(LEASES, "lead", "default")).spec
                await asyncio.sleep(10)
                after = (await KubeClient(cluster.transport()).get(LEASES, "lead", "default")).spec
                assert before.acquire_time == after.acquire_time
                assert before.renew_time < after.renew_time
                assert after.holder_identity == "a"

        run(main())
