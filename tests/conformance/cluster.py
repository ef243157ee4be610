"""A story on the operator, over the fake API server and in virtual time; its documents are sealed by the test's hand."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import msgspec
from tests.conformance.story_documents import Story, with_templates
from tests.conformance.story_log import EVENTS, line, said, settled, tells
from tests.conformance.toy_kind import Toys
from tests.kube.fake import Call, Fault, Harm
from tests.operator.rig.kubelet import Script
from tests.operator.rig.world import API, Unit, World, live

from dayfly.execute.pod import names
from dayfly.execute.webhook.exit_codes import ExitCode, code_of_status
from dayfly.kube.objects import AnnotatedMeta, ApiResource, PartialObjectMetadata
from dayfly.operator import main
from dayfly.operator.cluster.objects import (
    DOCUMENT_FINALIZER,
    RUN_FINALIZER,
    DocumentObject,
    RunObject,
)
from dayfly.operator.monitoring import json_log
from dayfly.operator.pools.extension import PoolsExtension
from dayfly.operator.reconciler import Reconciler
from dayfly.operator.targets.adapter import BaseAdapter, CachedTarget, Times
from dayfly.spec.kinds import Pin, RunSpec
from dayfly.spec.lifecycle import CREATE_EVENTS, LifecycleEvent, Target, digest, unit_id
from dayfly.spec.report import RunReport, UnitReport
from dayfly.spec.run import Run

MAPS, LEASE = "/api/v1/namespaces/shop/configmaps", "conformance/lease"
PLURALS = {"Sandbox": "sandboxes", "ConfigMap": "configmaps"}


class Moves(logging.Handler):
    """The moves of the ledger, from the operator's log."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._lines: list[tuple[str, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        members: dict[str, Any] = getattr(record, "members", {})
        if (event := members.get("event")) in EVENTS.values():
            self._lines.append((members["run"], line(event, members)))

    def of_run(self, name: str) -> list[str]:
        """Return the moves of one run, without those of its members and parents."""
        return [each for run, each in self._lines if run == name]

    @property
    def lines(self) -> list[str]:
        """The moves of all runs."""
        return [each for _, each in self._lines]


class Kept(Reconciler):
    """Keeps what it knows of runs at rest, because the test queries it at any time."""

    def shrink_memory(self, _run: str) -> None:
        """Keep it."""


@contextlib.contextmanager
def reconcilers() -> Iterator[list[Reconciler]]:
    """Collect the reconciler of each operator that starts, the newest last."""
    made: list[Reconciler] = []

    def make(*parts: Any, **options: Any) -> Reconciler:
        made.append(Kept(*parts, **options))
        return made[-1]

    with mock.patch.object(main, "Reconciler", make):
        yield made


class Leased(BaseAdapter):
    """A target with a lease; Sandboxes have none."""

    def __init__(self) -> None:
        super().__init__(ApiResource("", "v1", "configmaps", "ConfigMap", PartialObjectMetadata, partial=True))

    def get_times(self, _run: RunObject, seen: CachedTarget) -> Times:
        return Times(lease_until=int((seen.meta.annotations or {}).get(LEASE, "0")))


def _level(level: str) -> dict[str, Any]:
    """Return the patch of a baseline that sets its level."""
    container = {"name": "main", "env": [{"name": "LEVEL", "value": level}]}
    return {"spec": {"template": {"spec": {"containers": [container]}}}}


def _dies() -> Callable[[int, Call], Fault | None]:
    """The operator, before it first opens a gate."""
    done = False

    def hook(_number: int, call: Call) -> Fault | None:
        nonlocal done
        opens = (
            call.request.method == "PATCH" and "/pods/" in call.request.path and b"schedulingGates" in call.request.body
        )
        if done or not opens:
            return None
        done = True
        return Fault(Harm.CRASH_BEFORE)

    return hook


class _Stage:
    def __init__(self, world: World, tale: Story, reconcilers: list[Reconciler]) -> None:
        self.world, self.tale, self.reconcilers = world, tale, reconcilers
        self.toys = Toys(self._ledger, self._wake, gated=True, lost=tale.lost)
        self.looks: list[list[str]] = []

    def seal(self) -> None:
        """Seal the documents of a target of any kind, as a front controller does."""
        target = self._target()
        uid = target.uid
        documents = tuple(msgspec.structs.replace(each, target=target) for each in self.tale.documents)
        pins = []
        self.run = names.run_name("box", uid)
        for number, document in enumerate(documents):
            meta = AnnotatedMeta(
                name=f"document-{number}", finalizers=[DOCUMENT_FINALIZER], labels={names.RUN_LABEL: self.run}
            )
            made = self._post("objectlifecyclemethods", DocumentObject(metadata=meta, spec=document))
            pins.append(Pin(name=meta.name, uid=made["metadata"]["uid"], digest=digest(document)))
        ledger = Run(uid=uid, target=target, plan=digest(documents), born_at=self.world.now())
        meta = AnnotatedMeta(name=self.run, finalizers=[RUN_FINALIZER])
        spec = RunSpec(documents=tuple(pins), forks=self.tale.kept, plural=PLURALS[target.kind])
        self._post("runs", RunObject(metadata=meta, ledger=ledger, spec=spec))

    def _target(self) -> Target:
        if not any(act.what == "lapse" for act in self.tale.acts):
            return Target(api_version=API, kind="Sandbox", namespace="shop", name="box", uid=self.world.sandbox({}))
        made = self.world.ask("POST", MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "box"}})
        return Target(api_version="v1", kind="ConfigMap", namespace="shop", name="box", uid=made["metadata"]["uid"])

    def _post(self, plural: str, body: msgspec.Struct) -> Any:
        return self.world.ask("POST", f"/apis/{API}/{plural}", msgspec.json.decode(msgspec.json.encode(body)))

    @staticmethod
    def _ledger(view: Any) -> Run:
        return view.run.ledger

    def _wake(self, view: Any) -> None:
        for process in self.world.processes:
            process.operator.cluster.queue.add(view.run.metadata.name)

    def report(self) -> RunReport | None:
        if not self.world.processes:  # for a moment, when it has died
            return None
        return settled(self.reconcilers[-1].latest_scene(self.run))

    def _is_closed(self) -> bool:
        report = self.report()
        return report is not None and report.closed is not None

    def said_last(self) -> tuple[UnitReport, ...]:
        report = self.report()
        assert report is not None, "it has been looked at"
        return report.units

    async def play(self) -> None:
        for act in self.tale.acts:
            match act.what:
                case "until" | "await":
                    await self.world.until(
                        lambda act=act: tells(self.report(), act.of, act.said), f"{act} of {self.report()}", 600
                    )
                    report = self.report()
                    assert report is not None, "it has just been looked at"
                    if act.what == "until":
                        self.looks.append(said(report))
                case "delete":
                    self.world.delete()
                case "abandon":
                    self.world.change({"metadata": {"annotations": {"dayfly.dev/abandon": f"force: {act.said}"}}})
                case "closed":
                    await self.world.until(self._is_closed, "the run to close", 60)
                case "expire":
                    self.world.change({"spec": {"ttl": {"duration": "1m", "offsetFrom": "createdAt"}}})
                case "lapse":
                    patch = {"metadata": {"annotations": {LEASE: "1"}}}
                    self.world.ask("PATCH", f"{MAPS}/box", patch, "application/merge-patch+json")
                case "retry":
                    attempt = next(unit.attempt for unit in self.said_last() if unit.id == act.of)
                    self.world.change({"metadata": {"annotations": {"dayfly.dev/retry": f"{act.of}={attempt}"}}})
                case "settle":
                    self.toys.settle(act.of)
                case "follow":
                    self.world.forks.edit(_level("2"), "app")
                    await self.world.until(lambda: self.world.forks.env()["LEVEL"] == "2", "the fork to follow", 60)
                case "gone":
                    await self.world.until(lambda: not self.world.leftovers(), "everything to go", 300)


def _end(status: int) -> int:
    """Return the exit code of the sender after this answer."""
    return ExitCode.ANSWER_LOST if status == 0 else 0 if status < 300 else code_of_status(status)


def tell(tale: Story) -> tuple[list[str], list[list[str]], list[str]]:
    """Return the moves, the reports of each stage, and the changes of toys."""
    moves, stages = Moves(), []

    def born() -> World:
        units = {
            unit_id(document.resource, unit.name): (unit, event)
            for document in with_templates(tale.documents)
            for event in LifecycleEvent
            for unit in document.units(event)
        }
        scripts = {}
        for name in units:
            how = tale.scripts.get(name)
            fails, outputs, endless = (how.fails, how.outputs, how.endless) if how else (0, {}, False)
            large = sum(map(len, outputs.values())) > 1_000
            codes = tuple(map(_end, how.statuses)) if how else ()
            broken = ""
            if how and how.broken and units[name][0].webhook:
                codes = (ExitCode.ADDRESS_REFUSED,)
            elif how and how.broken:
                broken = "The script's interpreter /no/such does not exist here: No such file or directory."
            runs = 7_200 if endless else 2
            scripts[name] = Script(fails=fails, outputs=outputs, runs=runs, in_log=large, codes=codes, broken=broken)
        known = {
            name: Unit(creates=event in CREATE_EVENTS, drains=event is LifecycleEvent.PRE_STOP)
            for name, (_, event) in units.items()
        }
        world = World(known, scripts)
        world.front, world.pools = None, PoolsExtension
        world.kinds = (lambda _cluster: Leased(),)
        world.forks.baseline("app")
        world.forks.edit(_level("1"), "app")
        if tale.dies_at:
            world.hook = _dies()
        world.cloud.lossy = True
        return world

    async def story(world: World) -> None:
        with reconcilers() as made:
            stage = _Stage(world, tale, made)
            stages.append(stage)
            stage.seal()
            world.start()
            made[0].executors.add(stage.toys)
            await stage.play()

    logger, level = json_log.log, json_log.log.level
    logger.addHandler(moves)
    logger.setLevel(logging.INFO)
    try:
        live(born, story)
    finally:
        logger.removeHandler(moves)
        logger.setLevel(level)
    return moves.of_run(stages[0].run), stages[0].looks, stages[0].toys.journal
