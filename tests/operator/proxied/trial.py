"""One story on a real server: the user's actions, the result, and its violations."""

from __future__ import annotations

import time
from typing import Any

from tests.operator.proxied.baselines import Baseline
from tests.operator.proxied.node import Stage
from tests.operator.proxied.plans import LIVES, End, Plan
from tests.operator.proxied.proxy import Call, Harm
from tests.operator.proxied.recorder import Object, Record
from tests.operator.rig import invariants
from tests.operator.rig.cloud import Cloud
from tests.operator.rig.scenes import READY, wish

from dayfly.kube.client import KubeClient
from dayfly.operator.cluster.objects import SANDBOXES

SHOP = "shop"
_SANDBOXES = SANDBOXES.read_as(dict[str, Any])


class Trial:
    """One plan, its result, and the violations."""

    def __init__(self, plan: Plan, record: Record) -> None:
        self.plan, self.life, self.record = plan, LIVES[plan.life], record
        self.changes: list[str] = []
        self.harmed = ""
        self.took = 0.0
        self.uid = self.waiting = ""
        runs: list[Object] = []
        self.cloud = Cloud(time.monotonic, lambda: runs)
        self.stage = Stage(self.life.script, self.cloud, runs)
        self.baseline: Baseline | None = None
        for name, unit in self.life.units.items():
            reads = {key: (of, self.life.script(of).outputs[output]) for key, (of, output) in unit.reads.items()}
            self.cloud.knows(name, creates=unit.creates, once=unit.once, reads=reads)

    def harm(self, call: Call) -> Harm | None:
        """Return the fault of this change, if it is the selected one."""
        self.changes.append(str(call))
        if self.plan.harm is None or len(self.changes) != self.plan.number:
            return None
        self.harmed = str(call)
        self.changes[-1] += f" <- {self.plan.harm.value}"
        return self.plan.harm

    def broken(self) -> list[str]:
        """Return all violations; empty if the story is correct."""
        units = self.life.units
        once = {name for name, unit in units.items() if unit.once}
        creates = {name for name, unit in units.items() if unit.creates}
        pairs = {name: unit.undone_by for name, unit in units.items() if unit.undone_by}
        runs, pods, forks = (self.record.writes.get(plural, []) for plural in ("runs", "pods", "deployments"))
        found = [*self.cloud.violations, *invariants.violations(runs, pods, once, creates)]
        found += [
            *invariants.unclaimed_forks(runs, forks),
            *(self.baseline.touched(self.changes) if self.baseline else ()),
        ]
        made = {write.new["metadata"]["uid"] for write in self.record.writes.get("configmaps", ()) if write.new}
        found += [f"(1) {len(made)} objects were made"] if len(made) > 1 else []
        found += [f"(4) {unit} is not undone" for unit in self.cloud.leaks(self.uid, pairs)]
        found += [f"(14) {each} is left" for each in self.record.left()]
        if self.life.ends is not End.STARTED:
            found += [f"{unit} has not succeeded" for unit in units if not self.cloud.succeeded(unit, self.uid)]
        return found

    @property
    def missed(self) -> bool:
        """Whether it ended before the change with the fault, so that it has shown nothing."""
        return self.plan.harm is not None and not self.harmed

    def story(self) -> str:
        """Return the story for the reader of a failed test."""
        log = [
            f"{e.at - self.cloud.log[0].at:8.2f} {e.what:5} {e.unit}#{e.attempt} {e.outcome}" for e in self.cloud.log
        ]
        there = [
            f"{plural} {item['metadata']} {item.get('ledger', '')}" for (plural, _), item in self.record.there.items()
        ]
        return "\n".join([str(self.plan), *log, *there, *self.changes])


class Actor:
    """The user of one story. During a wait, `trial.waiting` names what it waits for."""

    def __init__(self, admin: KubeClient, trial: Trial) -> None:
        self._admin, self._trial, self._record = admin, trial, trial.record
        self._name = str(trial.plan)

    async def play(self) -> None:
        """Play from the creation to the end, whatever happens."""
        trial, spec = self._trial, {"cluster": "c", **wish()}
        spec["resources"][0]["plugin"] = trial.plan.life
        if trial.life.forks:
            trial.baseline = Baseline(self._admin, self._name, SHOP)
            await trial.baseline.make()
            spec["forks"] = trial.baseline.wish()
        body = {"apiVersion": SANDBOXES.api_version, "kind": SANDBOXES.kind, "metadata": {"name": self._name}}
        made = await self._admin.create(_SANDBOXES, body | {"spec": spec}, SHOP)
        trial.uid = made["metadata"]["uid"]
        trial.waiting = f"this: {trial.life.ends.value}"
        await self._record.until(self._far_enough)
        if trial.life.ends is End.FOLLOWED:
            await self._change()
        await self._admin.delete(SANDBOXES, self._name, SHOP)
        trial.waiting = "everything to go"
        await self._record.until(lambda: not self._record.there)
        if trial.baseline and trial.life.ends is not End.FOLLOWED:
            await trial.baseline.forsake()

    def _far_enough(self) -> bool:
        match self._trial.life.ends:
            case End.STARTED:
                return self._trial.cloud.starts("db/make") > 0
            case End.CLAIMED:
                units: dict[str, Object] = self._record.one("runs").get("ledger", {}).get("units", {})
                return any(name.startswith("fork:") and each["state"] == "claimed" for name, each in units.items())
            case End.READY | End.FOLLOWED:
                return self._ready()

    def _ready(self) -> bool:
        status: Object = self._record.one("sandboxes").get("status", {})
        return status.get("reason") == READY

    async def _change(self) -> None:
        """Change the spec, then the baseline; at last delete the baseline, and the fork stays."""
        baseline = self._trial.baseline
        assert baseline is not None, "only forks follow"
        spec = {"spec": {"forks": baseline.wish(images=[{"image": "web:2"}])}}
        await self._admin.patch(_SANDBOXES, spec, self._name, SHOP)
        await self._record.until(lambda: baseline.follows(self._record, "web:2", None, 80) and self._ready())
        await baseline.edit()
        await self._record.until(lambda: baseline.follows(self._record, "web:2", ["new"], 90) and self._ready())
        await baseline.forsake()
