"""The outputs of a step that has ended, by what its pod, its log and an earlier try have of them; each rule alone."""

from __future__ import annotations

import hashlib
from types import SimpleNamespace

import msgspec
import pytest
from test_step_observer import MAKE, NOW, Bench, pod, record

from dayfly.execute.pod.read import Seen
from dayfly.plan.reasons import Reason
from dayfly.plan.world import Ended, Sealed, Unread
from dayfly.spec.run import OutputRecord, Result

KEY = MAKE, 1
VALUES = {"url": b"db://1", "key": b"s3cr3t"}
UNREAD = Unread(since=NOW, message="no log")


def result(**values: bytes) -> Result:
    outputs = {
        name: OutputRecord(digest="sha256:" + hashlib.sha256(value).hexdigest(), size=len(value))
        for name, value in values.items()
    }
    return Result(outcome="succeeded", ended_at=NOW, outputs=outputs)


class Late(Bench):
    """A step has told its outputs; which of them are in its pod, its log and a Secret is the test's to say."""

    def __init__(self, *, abandoned: bool = False) -> None:
        super().__init__(make=record())
        self.sight.abandoned = abandoned
        self.log: dict[str, bytes] | Unread = {}
        self.kept: dict[str, bytes] | None = None
        self.done: list[object] = []
        queue = SimpleNamespace(add=lambda run, after: self.done.append((run, after)))
        self.observer._cluster = SimpleNamespace(queue=queue)
        self.observer._log_outputs = SimpleNamespace(read=self._read, again_in=lambda _wait: 2.0)
        self.observer._outputs = SimpleNamespace(recall=self._recall)

    async def _read(self, _pod, digest, _wait):
        self.done.append(f"log {digest}")
        return self.log

    async def _recall(self, _run, _place, _result):
        self.done.append("recall")
        return self.kept

    async def told(self, kind=Ended, in_log=("key",), **values: bytes):
        fact = kind(result=result(**VALUES))
        seen = Seen(fact=fact, values=values, in_log=in_log, log_digest="d")
        return await self.observer._with_outputs(self.sight, KEY, seen, pod())


@pytest.mark.parametrize("kind", [Ended, Sealed])
async def test_they_are_put_together_from_its_pod_and_its_log(kind):
    bench = Late()
    bench.log = {"key": b"s3cr3t"}
    fact = await bench.told(kind, url=b"db://1")
    assert isinstance(fact, kind)
    assert fact.result.outcome == "succeeded"
    assert (bench.sight.outputs, bench.done) == ({KEY: VALUES}, ["log d"])


async def test_where_all_are_in_the_pod_no_log_is_read():
    bench = Late()
    await bench.told(in_log=(), **VALUES)
    assert (bench.sight.outputs, bench.done) == ({KEY: VALUES}, [])


async def test_what_an_earlier_try_has_kept_needs_no_log():
    bench = Late()
    bench.log, bench.kept = UNREAD, VALUES
    assert isinstance(await bench.told(url=b"db://1"), Ended)
    assert (bench.sight.outputs, bench.done) == ({KEY: VALUES}, ["log d", "recall"])


async def test_a_log_that_cannot_be_read_now_is_waited_for():
    bench = Late()
    bench.log = UNREAD
    assert await bench.told(url=b"db://1") == UNREAD
    assert (bench.sight.outputs, bench.done[-1]) == ({}, ("box", 2.0))


@pytest.mark.parametrize("log", [UNREAD, {"key": b"another"}])
async def test_what_is_waited_for_by_nobody_or_has_other_bytes_is_lost(log):
    bench = Late(abandoned=log is UNREAD)
    bench.log = log
    fact = await bench.told(url=b"db://1")
    assert msgspec.structs.replace(fact.result, message="") == Result(
        outcome="failed", reason=Reason.OUTPUTS_LOST, ended_at=NOW
    )
    assert fact.result.message.startswith("output key was written, but"), "the other one is there"
    assert bench.sight.outputs == {}
