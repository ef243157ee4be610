"""Limits of followed logs, and pauses for nodes whose logs cannot be read."""

from __future__ import annotations

import asyncio
import itertools
import logging

import msgspec
import pytest

from dayfly.kube.client import Client
from dayfly.kube.objects import PODS
from dayfly.operator.pods import log_follower, node_access
from dayfly.operator.pods.log_follower import Followers
from dayfly.operator.pods.node_access import Nodes
from kube.fake import FakeCluster, Fault, Harm, Refusal, run


def silent_node(failures: int = node_access.PATIENCE) -> Nodes:
    found = Nodes()
    for _ in range(failures):
        found.failed("n", "why")
    return found


class TestNodes:
    def test_silent_node_is_retried_after_growing_pauses(self):
        async def story() -> list[float]:
            assert silent_node(node_access.PATIENCE - 1).pause("n") == 0.0
            found, pauses = silent_node(), []
            for _ in range(9):
                pauses.append(found.pause("n"))
                await asyncio.sleep(pauses[-1])
                assert found.pause("n") == 0.0
                found.asking("n")
                assert found.pause("n") == pauses[-1], "one request at a time"
                found.failed("n", "why")
            assert (found.pause("other"), found.silent()) == (0.0, 1)
            found.answered("n")
            assert (found.pause("n"), found.silent()) == (0.0, 0)
            return pauses

        assert run(story()) == [5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 300.0, 300.0]

    def test_counting_silent_nodes_forgets_no_failure(self):
        """Metrics count them on machines that have been up for long, too."""

        async def story() -> int:
            await asyncio.sleep(2 * node_access.FORGOTTEN_S)
            found = Nodes()
            for _ in range(node_access.PATIENCE):
                assert found.silent() == 0
                found.failed("n", "why")
            return found.silent()

        assert run(story()) == 1

    @pytest.mark.parametrize(("seconds", "silent"), [(0, 1), (1, 0)])
    def test_silent_node_is_forgotten_after_a_while(self, seconds, silent):
        async def story() -> int:
            found = silent_node()
            await asyncio.sleep(node_access.FIRST_S + node_access.FORGOTTEN_S + seconds)
            return found.silent()

        assert run(story()) == silent

    @pytest.mark.parametrize("failures", [0, 1, node_access.PATIENCE - 1, node_access.PATIENCE])
    def test_recovery_is_logged_only_of_silent_nodes(self, caplog, failures):
        async def story() -> None:
            silent_node(failures).answered("n")

        caplog.set_level(logging.INFO, "dayfly.operator.pods.node_access")
        run(story())
        found = [record.message for record in caplog.records if "can be read again" in record.message]
        silent = failures == node_access.PATIENCE
        assert found == (["the logs of steps on node n can be read again"] if silent else [])


class TestFollowers:
    async def beside(self, story) -> None:
        cluster = FakeCluster(seed=1)
        client = Client(cluster.transport("operator"), seed=1)
        spec = {"nodeName": "n", "containers": [{"name": "main", "image": "x"}]}
        pods = [
            await client.create(PODS, {"metadata": {"name": name, "namespace": "default"}, "spec": spec}, "default")
            for name in ("a", "b")
        ]
        cluster.log_of("a", "default").write(b"a line\n")
        followers = Followers(client, lambda _: None)
        await story(cluster, followers, *pods)
        await followers.close()

    def test_number_of_followed_logs_is_limited(self, monkeypatch):
        monkeypatch.setattr(log_follower, "MOST", 1)

        async def story(_cluster, followers, pod, other) -> None:
            gone = msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, name="gone", uid="g"))
            followers.follow(gone, "run")
            assert not followers.wants(pod)
            await asyncio.sleep(1)
            assert followers.wants(pod), "the other log has ended"
            assert not followers.wants(gone), "nor is it requested again"
            followers.follow(pod, "run")
            assert not followers.wants(pod)
            assert not followers.wants(other)
            followers.forget(pod.metadata.uid)
            assert followers.wants(other)

        run(self.beside(story))

    def test_logs_on_a_silent_node_are_not_followed(self):
        async def story(_cluster, followers, pod, _other) -> None:
            for _ in range(node_access.PATIENCE):
                followers.nodes.failed("n", "why")
            assert not followers.wants(pod)

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
            await asyncio.sleep(log_follower.PATIENCE_S + 600)
            late = [each for each in tries if each > began + log_follower.PATIENCE_S]
            waits = [round(after - before, 1) for before, after in itertools.pairwise(late)]
            assert waits[:8] == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]
            cluster.refuses = lambda _request: None
            await asyncio.sleep(log_follower.LATER.most)
            assert (await followers.printed(pod)).tail == b"a line\n"

        run(self.beside(story))

    @pytest.mark.parametrize("followed", [True, False])
    def test_lines_read_before_a_log_breaks_off_are_kept(self, followed):
        async def story(cluster, followers, pod, _other) -> None:
            if followed:
                followers.follow(pod, "run")
                await asyncio.sleep(1)
            cluster.faults = lambda call: Fault(Harm.TROUBLE_BEFORE) if call.request.path.endswith("/log") else None
            printed = await followers.printed(pod)
            assert (printed and printed.tail) == (b"a line\n" if followed else None)

        run(self.beside(story))
