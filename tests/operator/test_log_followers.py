"""Limits of followed logs, and pauses for nodes whose logs cannot be read."""

from __future__ import annotations

import asyncio
import itertools
import logging

import msgspec
import pytest
from tests.kube.fake import FakeCluster, Fault, Harm, Refusal, run

from dayfly.kube.client import KubeClient
from dayfly.kube.objects import PODS
from dayfly.operator.pods import log_follower, node_access
from dayfly.operator.pods.log_follower import LogFollowers
from dayfly.operator.pods.node_access import NodeAccess


def silent_node(failures: int = node_access.MAX_FAILURES) -> NodeAccess:
    found = NodeAccess()
    for _ in range(failures):
        found.record_failure("n", "why")
    return found


class TestNodes:
    def test_silent_node_is_retried_after_growing_pauses(self):
        async def story() -> list[float]:
            assert silent_node(node_access.MAX_FAILURES - 1).pause("n") == 0.0
            found, pauses = silent_node(), []
            for _ in range(9):
                pauses.append(found.pause("n"))
                await asyncio.sleep(pauses[-1])
                assert found.pause("n") == 0.0
                found.begin_request("n")
                assert found.pause("n") == pauses[-1], "one request at a time"
                found.record_failure("n", "why")
            assert (found.pause("other"), found.count_unreachable()) == (0.0, 1)
            found.record_answer("n")
            assert (found.pause("n"), found.count_unreachable()) == (0.0, 0)
            return pauses

        assert run(story()) == [5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 300.0, 300.0]

    def test_counting_silent_nodes_forgets_no_failure(self):
        """The metric is also correct on machines with a long uptime."""

        async def story() -> int:
            await asyncio.sleep(2 * node_access.FORGET_AFTER_S)
            found = NodeAccess()
            for _ in range(node_access.MAX_FAILURES):
                assert found.count_unreachable() == 0
                found.record_failure("n", "why")
            return found.count_unreachable()

        assert run(story()) == 1

    @pytest.mark.parametrize(("seconds", "silent"), [(0, 1), (1, 0)])
    def test_silent_node_is_forgotten_after_a_while(self, seconds, silent):
        async def story() -> int:
            found = silent_node()
            await asyncio.sleep(node_access.FIRST_PAUSE_S + node_access.FORGET_AFTER_S + seconds)
            return found.count_unreachable()

        assert run(story()) == silent

    @pytest.mark.parametrize("failures", [0, 1, node_access.MAX_FAILURES - 1, node_access.MAX_FAILURES])
    def test_recovery_is_logged_only_of_silent_nodes(self, caplog, failures):
        async def story() -> None:
            silent_node(failures).record_answer("n")

        caplog.set_level(logging.INFO, "dayfly.operator.pods.node_access")
        run(story())
        found = [record.message for record in caplog.records if "can be read again" in record.message]
        silent = failures == node_access.MAX_FAILURES
        assert found == (["logs of steps on node n can be read again"] if silent else [])


class TestFollowers:
    async def beside(self, story) -> None:
        cluster = FakeCluster(seed=1)
        client = KubeClient(cluster.transport("operator"), seed=1)
        spec = {"nodeName": "n", "containers": [{"name": "main", "image": "x"}]}
        pods = [
            await client.create(PODS, {"metadata": {"name": name, "namespace": "default"}, "spec": spec}, "default")
            for name in ("a", "b")
        ]
        cluster.log_of("a", "default").write(b"a line\n")
        followers = LogFollowers(client, lambda _: None)
        await story(cluster, followers, *pods)
        await followers.close()

    def test_number_of_followed_logs_is_limited(self, monkeypatch):
        monkeypatch.setattr(log_follower, "MAX_FOLLOWED", 1)

        async def story(_cluster, followers, pod, other) -> None:
            gone = msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, name="gone", uid="g"))
            followers.follow(gone, "run")
            assert not followers.would_follow(pod)
            await asyncio.sleep(1)
            assert followers.would_follow(pod), "the other log has ended"
            assert not followers.would_follow(gone), "nor is it requested again"
            followers.follow(pod, "run")
            assert not followers.would_follow(pod)
            assert not followers.would_follow(other)
            followers.forget(pod.metadata.uid)
            assert followers.would_follow(other)

        run(self.beside(story))

    def test_logs_on_a_silent_node_are_not_followed(self):
        async def story(_cluster, followers, pod, _other) -> None:
            for _ in range(node_access.MAX_FAILURES):
                followers.nodes.record_failure("n", "why")
            assert not followers.would_follow(pod)

        run(self.beside(story))

    def test_refused_log_is_requested_more_and_more_seldom(self):
        async def story(cluster, followers, pod, _other) -> None:
            tries = []

            def refuse(request):
                if not request.path.endswith("/log"):
                    return None
                tries.append(asyncio.get_running_loop().time())
                return Refusal(403, "no right to read logs")

            cluster.refuses = refuse
            followers.follow(pod, "run")
            began = asyncio.get_running_loop().time()
            await asyncio.sleep(log_follower.FAST_RETRIES_FOR_S + 600)
            late = [each for each in tries if each > began + log_follower.FAST_RETRIES_FOR_S]
            waits = [round(after - before, 1) for before, after in itertools.pairwise(late)]
            assert waits[:8] == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]
            cluster.refuses = lambda _request: None
            await asyncio.sleep(log_follower.SLOW_RETRY.maximum)
            assert (await followers.read_tail(pod)).tail == b"a line\n"

        run(self.beside(story))

    @pytest.mark.parametrize("followed", [True, False])
    def test_lines_read_before_a_log_breaks_off_are_kept(self, followed):
        async def story(cluster, followers, pod, _other) -> None:
            if followed:
                followers.follow(pod, "run")
                await asyncio.sleep(1)
            cluster.faults = lambda call: Fault(Harm.TROUBLE_BEFORE) if call.request.path.endswith("/log") else None
            printed = await followers.read_tail(pod)
            assert (printed and printed.tail) == (b"a line\n" if followed else None)

        run(self.beside(story))
