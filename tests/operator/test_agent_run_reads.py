"""The outputs, history and logs of a run that a server may read; sensitive values stay in the cluster."""

from __future__ import annotations

import base64
import hashlib
from types import SimpleNamespace

import msgspec
import pytest

from dayfly.execute.pod import names
from dayfly.kube.objects import SECRETS, AnnotatedMeta, Secret
from dayfly.operator.agent import run_reads
from dayfly.operator.cluster.objects import DOCUMENTS, DocumentObject, RunObject, StepLogsObject
from dayfly.spec.kinds import Pin, RunSpec, SandboxRef, StepLog, StepLogsSpec
from dayfly.spec.lifecycle import Exec, Lifecycle, Target, Unit, UnitOutput
from dayfly.spec.run import EndRequest, OutputRecord, Run, State, UnitRecord
from dayfly.spec.run_data import LogInfo, Value

TARGET = Target(kind="Sandbox", namespace="shop", name="box", uid="u")
DATA = {"url": b"db://1", "key": b"secret", "region": b"eu"}


def record(name: str, attempt: int = 1, *, data: bytes | None = None, sensitive: bool = False) -> OutputRecord:
    found = DATA[name] if data is None else data
    digest = "sha256:" + hashlib.sha256(found).hexdigest()
    return OutputRecord(digest=digest, size=len(found), attempt=attempt, sensitive=sensitive)


def a_run(**outputs: OutputRecord) -> RunObject:
    unit = UnitRecord(attempt=2, state=State.DONE, kind="exec", claimed_at=5, ended_at=9, outputs=outputs)
    unit = msgspec.structs.replace(unit, outcome="failed", reason="ExitCode", message="m")
    ledger = Run(uid="u", target=TARGET, plan="", units={"db/make": unit, "db/none": UnitRecord()}, born_at=1)
    spec = RunSpec(documents=(Pin(name="gone", uid="", digest=""), Pin(name="d", uid="d", digest="")))
    return RunObject(metadata=AnnotatedMeta(name="box-run", uid="r"), ledger=ledger, spec=spec)


class Cluster:
    """A cluster with one document, in the cache or only on the server, and the Secrets of attempts."""

    def __init__(self, *, cached: bool = True, **secrets: dict[str, bytes]) -> None:
        outputs = (UnitOutput(name="url"), UnitOutput(name="key", sensitive=True), UnitOutput(name="region"))
        step = Unit(name="make", kind="exec", exec=Exec(script="#!/bin/sh"), outputs=outputs)
        spec = Lifecycle(target=TARGET, resource="db", pre_start=(step,))
        self.document = DocumentObject(metadata=AnnotatedMeta(name="d", uid="d"), spec=spec)
        self.documents = SimpleNamespace(get=lambda name: self.document if cached and name == "d" else None)
        self.secrets = {names.outputs_name("u", "db/make", int(key[1:])): data for key, data in secrets.items()}
        self.client = self
        self.asked: list[str] = []

    async def find(self, kind, name, namespace=""):
        if kind is DOCUMENTS:
            return self.document if name == "d" else None
        assert (kind, namespace) == (SECRETS, names.RUNNERS)
        self.asked.append(name)
        data = self.secrets.get(name)
        return Secret(metadata=AnnotatedMeta(name=name), data=data) if name in self.secrets else None


class TestValues:
    @pytest.mark.parametrize("cached", [True, False])
    async def test_sensitive_outputs_are_listed_but_not_read(self, cached):
        found = a_run(url=record("url"), key=record("key"), region=record("region", sensitive=True))
        cluster = Cluster(cached=cached, a1={"url": b"db://1", "key": b"secret", "region": b"eu"})
        assert await run_reads.read_values(cluster, found) == (
            Value(unit="db/make", output="key", value=b"", sensitive=True),
            Value(unit="db/make", output="region", value=b"", sensitive=True),
            Value(unit="db/make", output="url", value=b"db://1"),
        )

    async def test_internal_outputs_are_not_listed(self):
        found = a_run(url=record("url"), **{"definite-answer": record("", data=b"key")})
        cluster = Cluster(a1={"url": b"db://1", "definite-answer": b"key"})
        assert [value.output for value in await run_reads.read_values(cluster, found)] == ["url"]

    async def test_outputs_are_read_from_the_attempt_that_wrote_them(self):
        """A failed attempt has some of its outputs, and earlier attempts keep theirs."""
        found = a_run(url=record("url"), region=record("region", 2))
        cluster = Cluster(a1={"url": b"db://1", "region": b"us"}, a2={"region": b"eu"})
        told = {value.output: value.value for value in await run_reads.read_values(cluster, found)}
        assert told == {"url": b"db://1", "region": b"eu"}
        assert len(cluster.asked) == 2

    @pytest.mark.parametrize("kept", [{}, {"a1": None}, {"a1": {"url": b"other"}}])
    async def test_outputs_with_another_digest_are_omitted(self, kept):
        assert await run_reads.read_values(Cluster(**kept), a_run(url=record("url"))) == ()


class TestHistory:
    def test_history_is_ordered_by_time(self):
        found = a_run()
        asked = EndRequest(at=7, reason="Deleted", message="in words")
        ledger = msgspec.structs.replace(found.ledger, closed=asked, abandon=EndRequest(at=8, reason="Abandoned"))
        told = run_reads.build_history(msgspec.structs.replace(found, ledger=ledger))
        assert [
            (each.seq, each.at, each.move, each.unit, each.attempt, each.reason, each.message) for each in told
        ] == [
            (0, 1, "Born", "", 0, "", ""),
            (1, 5, "Claim", "db/make", 2, "", ""),
            (2, 7, "Close", "", 0, "Deleted", "in words"),
            (3, 8, "Abandon", "", 0, "Abandoned", ""),
            (4, 9, "Record", "db/make", 2, "ExitCode", "m"),
        ]

    def test_history_contains_the_outcome_of_success(self):
        found = a_run()
        unit = msgspec.structs.replace(found.ledger.units["db/make"], reason="", outcome="succeeded")
        ledger = msgspec.structs.replace(found.ledger, units={"db/make": unit})
        assert run_reads.build_history(msgspec.structs.replace(found, ledger=ledger))[-1].reason == "succeeded"


class TestLogs:
    async def test_logs_of_another_uid_are_omitted(self):
        def bundle(uid: str, *logs: StepLog) -> StepLogsObject:
            sandbox = SandboxRef(namespace="shop", name="box", uid=uid)
            return StepLogsObject(metadata=AnnotatedMeta(name="l"), spec=StepLogsSpec(sandbox=sandbox, logs=logs))

        coded = base64.b64encode(b"\xff").decode()
        bundles = [
            bundle("u", StepLog(unit="b", attempt=2, text="two"), StepLog(unit="b", attempt=1, text="o", times=(0, 5))),
            bundle("u", StepLog(unit="a", attempt=1, text=coded, encoding="base64")),
            bundle("u", StepLog(unit="c", attempt=1, text="no base64", encoding="base64")),
            bundle("another", StepLog(unit="x", attempt=1, text="x")),
        ]

        async def list_all(_kind, namespace, labels):
            assert (namespace, labels) == ("shop", f"{names.RUN_LABEL}=box-run")
            return SimpleNamespace(items=bundles)

        kept = await run_reads.read_logs(SimpleNamespace(list_all=list_all), a_run())
        assert run_reads.list_logs(kept) == (
            LogInfo(unit="a", attempt=1, size=1, sealed=True),
            LogInfo(unit="b", attempt=1, size=1, sealed=True),
            LogInfo(unit="b", attempt=2, size=3, sealed=True),
            LogInfo(unit="c", attempt=1, size=0, sealed=True),
        )
        assert kept["a", 1].data == b"\xff"
        assert len(kept["b", 1].times()) == 1
        assert kept["b", 2].read(1, 1) == b"w"
        assert kept["b", 2].read(1, 9) == b"wo"

    def test_log_pieces_are_limited_to_the_size_of_a_message(self):
        log = run_reads.KeptLog(b"x" * (run_reads.MAX_READ_BYTES + 5), ())
        assert len(log.read(0, 1 << 30)) == run_reads.MAX_READ_BYTES
