"""A story on the operator, over the fake API server and in virtual time; its documents are sealed by the test's hand."""

from __future__ import annotations

import logging
from typing import Any

import msgspec
from rig.kubelet import Script
from rig.world import API, Unit, World, live

from conformance.tales import Tale
from conformance.telling import EVENTS, said
from conformance.toys import Toys
from dayfly.execute.pod import names
from dayfly.kube.objects import AnnotatedMeta
from dayfly.operator.cluster.objects import (
    DOCUMENT_FINALIZER,
    RUN_FINALIZER,
    RUN_LABEL,
    DocumentObject,
    Pin,
    RunObject,
    RunSpec,
)
from dayfly.operator.monitoring import journal
from dayfly.plan.decide import decide
from dayfly.plan.status import Report, describe
from dayfly.spec.lifecycle import Event, Target, digest, unit_id
from dayfly.spec.run import Run


class _Moves(logging.Handler):
    """The ledger's moves, as the operator's log tells them."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        members: dict[str, Any] = getattr(record, "members", {})
        if (event := members.get("event")) in EVENTS.values():
            self.lines.append(_line(event, members))


def _line(event: str, members: dict[str, Any]) -> str:
    unit = f" {members['unit']}#{members['attempt']}" if "unit" in members else ""
    why = members.get("reason") or members.get("outcome") or ""
    return f"{event}{unit} {why}".rstrip()


class _Stage:
    def __init__(self, world: World, tale: Tale) -> None:
        self.world, self.tale = world, tale
        self.looks: list[list[str]] = []

    def seal(self) -> None:
        """What a front does, for documents of any kind."""
        uid = self.world.sandbox({})
        target = Target(api_version=API, kind="Sandbox", namespace="shop", name="box", uid=uid)
        documents = tuple(msgspec.structs.replace(each, target=target) for each in self.tale.documents)
        pins = []
        self.run = names.run_name("box", uid)
        for number, document in enumerate(documents):
            meta = AnnotatedMeta(
                name=f"document-{number}", finalizers=[DOCUMENT_FINALIZER], labels={RUN_LABEL: self.run}
            )
            made = self._post("objectlifecyclemethods", DocumentObject(metadata=meta, spec=document))
            pins.append(Pin(name=meta.name, uid=made["metadata"]["uid"], digest=digest(document)))
        ledger = Run(uid=uid, target=target, plan=digest(documents), born_at=self.world.now())
        meta = AnnotatedMeta(name=self.run, finalizers=[RUN_FINALIZER])
        spec = RunSpec(documents=tuple(pins), forks=self.tale.kept)
        self._post("runs", RunObject(metadata=meta, ledger=ledger, spec=spec))

    def _post(self, plural: str, body: msgspec.Struct) -> Any:
        return self.world.ask("POST", f"/apis/{API}/{plural}", msgspec.json.decode(msgspec.json.encode(body)))

    def report(self) -> Report | None:
        [process] = self.world.processes
        scene = process.operator._reconciler.last(self.run)
        if scene is None:
            return None
        return describe(scene.plan, scene.world, decide(scene.plan, scene.world, scene.now), scene.now)

    def is_said(self, of: str, word: str) -> bool:
        report = self.report()
        if report is None or not of:
            return report is not None and report.reason == word
        return any(unit.id == of and unit.reason == word for unit in report.units)

    async def play(self) -> None:
        for act in self.tale.acts:
            match act.what:
                case "until" | "await":
                    await self.world.until(
                        lambda act=act: self.is_said(act.of, act.said), f"{act} of {self.report()}", 600
                    )
                    report = self.report()
                    assert report is not None, "it has just been looked at"
                    if act.what == "until":
                        self.looks.append(said(report))
                case "delete":
                    self.world.delete()
                case "abandon":
                    self.world.change({"metadata": {"annotations": {"dayfly.dev/abandon": act.said}}})
                case "gone":
                    await self.world.until(lambda: not self.world.leftovers(), "everything to go")


def tell(tale: Tale) -> tuple[list[str], list[list[str]], list[str]]:
    """Moves, what was said, and what was done to toys."""
    moves, stages, toys = _Moves(), [], []

    def born() -> World:
        units = {
            unit_id(document.resource, unit.name): (unit, event)
            for document in tale.documents
            for event in Event
            for unit in document.units(event)
        }
        scripts = {}
        for name in units:
            how = tale.scripts.get(name)
            fails, outputs, endless = (how.fails, how.outputs, how.endless) if how else (0, {}, False)
            large = sum(map(len, outputs.values())) > 1_000
            scripts[name] = Script(fails=fails, outputs=outputs, runs=7_200 if endless else 2, in_log=large)
        known = {name: Unit(creates=event in (Event.PRE_START, Event.POST_START)) for name, (_, event) in units.items()}
        world = World(known, scripts)
        world.front = None
        world.cloud.lossy = True
        return world

    async def story(world: World) -> None:
        stage = _Stage(world, tale)
        stages.append(stage)
        stage.seal()
        world.start()
        [process] = world.processes
        operator = process.operator
        toy = Toys(
            lambda view: view.run.ledger, lambda view: operator.cluster.queue.add(view.run.metadata.name), gated=True
        )
        toys.append(toy)
        operator._reconciler.executors.add(toy)
        await stage.play()

    logger, level = journal.log, journal.log.level
    logger.addHandler(moves)
    logger.setLevel(logging.INFO)
    try:
        live(born, story)
    finally:
        logger.removeHandler(moves)
        logger.setLevel(level)
    return moves.lines, stages[0].looks, toys[0].journal
