"""Events: one for each change, and a count for repetitions."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator

import msgspec
import pytest
from tests.kube.fake import FakeCluster, Fault, Harm, run

from dayfly.kube.client import KubeClient
from dayfly.kube.events import Recorder
from dayfly.kube.objects import ObjectReference
from dayfly.kube.transport import KubeRequest

POD = ObjectReference("v1", "Pod", "default", "p", "uid-of-p")


@contextlib.asynccontextmanager
async def recording(cluster: FakeCluster) -> AsyncIterator[Recorder]:
    recorder = Recorder(KubeClient(cluster.transport()), "dayfly.dev/test", "test-1")
    task = asyncio.create_task(recorder.run())
    try:
        yield recorder
    finally:
        task.cancel()


class TestRecorder:
    def test_a_repetition_is_counted_and_seldom_written(self):
        """The same Event each second for an hour: one Event, whose series is written every five minutes."""

        async def main():
            cluster = FakeCluster()
            async with recording(cluster) as recorder:
                for _ in range(3600):
                    recorder.record(POD, "Pull", "PullFailed", "no such image", "Warning")
                    await asyncio.sleep(1)
                await recorder.wait_written()
                (event,) = cluster.objects("events")
                assert event["series"]["count"] == 3301
                assert cluster.writes == 12
                assert (event["reason"], event["type"], event["note"]) == ("PullFailed", "Warning", "no such image")
                assert event["regarding"]["uid"] == "uid-of-p"

        run(main())

    def test_a_change_is_a_new_event(self):
        """Another note, reason or type of the same topic is a new Event, as is a return to the first; topics are
        separate.
        """

        async def main():
            cluster = FakeCluster()
            async with recording(cluster) as recorder:
                for note in ("1/2", "1/2", "2/2", "1/2"):
                    recorder.record(POD, "Create", "Progress", note)
                    recorder.record(POD, "Watch", "Fine", "as ever")
                    await asyncio.sleep(1)
                await recorder.wait_written()
                notes = sorted(event["note"] for event in cluster.objects("events"))
                assert notes == ["1/2", "1/2", "2/2", "as ever"]

        run(main())

    def test_event_repeated_after_its_deletion_is_new(self):
        """Servers keep Events for an hour: a series of a deleted Event would be lost."""

        async def main():
            cluster = FakeCluster()
            async with recording(cluster) as recorder:
                recorder.record(POD, "Pull", "PullFailed", "no such image", "Warning")
                await asyncio.sleep(3_700)
                (event,) = cluster.objects("events")
                path = f"/apis/events.k8s.io/v1/namespaces/default/events/{event['metadata']['name']}"
                assert cluster.answer(KubeRequest("DELETE", path)).status == 200
                recorder.record(POD, "Pull", "PullFailed", "no such image", "Warning")
                await recorder.wait_written()
                (event,) = cluster.objects("events")
                assert (event["reason"], recorder.lost) == ("PullFailed", 0)

        run(main())

    @pytest.mark.parametrize("cut", ["x", ".", "-"])
    def test_event_of_a_longest_name_has_a_valid_name(self, cut):
        async def main():
            cluster = FakeCluster()
            async with recording(cluster) as recorder:
                recorder.record(
                    msgspec.structs.replace(POD, name="a" * 229 + cut + "b" * 23), "Create", "Progress", "1/2"
                )
                await recorder.wait_written()
                (event,) = cluster.objects("events")
                name = event["metadata"]["name"]
                assert len(name) <= 253
                assert all(re.fullmatch("[a-z0-9]([-a-z0-9]*[a-z0-9])?", part) for part in name.split("."))

        run(main())

    def test_lost_event_is_counted_and_later_ones_are_written(self):
        """A write fails: the next ones are written, except a series whose Event is missing."""

        async def main():
            cluster = FakeCluster()
            cluster.faults = lambda call: Fault(Harm.TROUBLE_BEFORE) if call.write == 1 else None
            async with recording(cluster) as recorder:
                recorder.record(POD, "Create", "Progress", "lost")
                await asyncio.sleep(400)
                recorder.record(POD, "Create", "Progress", "lost")
                recorder.record(POD, "Create", "Progress", "ü" * 2000)
                await recorder.wait_written()
                (event,) = cluster.objects("events")
                assert 1024 >= len(event["note"].encode()) >= 1023
                assert recorder.lost == 1

        run(main())
