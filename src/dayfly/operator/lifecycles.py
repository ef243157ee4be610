"""Turns over Run objects: gather from caches, decide, commit by compare-and-swap, bring effects about by UID."""

import base64
import contextlib
import logging
import time
from typing import Any, assert_never

import msgspec

from dayfly.execute import receipt
from dayfly.execute.order import CannotRenderError
from dayfly.execute.pod import names, read
from dayfly.execute.pod.render import PodAttempt, SecretKey
from dayfly.execute.pod.render import pod as render
from dayfly.execute.pod.run import ForeignPodError, Pods
from dayfly.execute.turn import Scene
from dayfly.kube import errors
from dayfly.kube.objects import PODS, SECRETS, Pod
from dayfly.operator.cluster import Cluster
from dayfly.operator.follow import Followers
from dayfly.operator.objects import RUN_FINALIZER, RUNS, RunObject
from dayfly.operator.targets import Targets
from dayfly.plan.actions import Cancel, Dissolve, Effect, Fence, Launch, Move, Prepare, Record, Release
from dayfly.plan.sealed import Plan, seal
from dayfly.plan.words import Reason
from dayfly.plan.world import AttemptKey, Ended, Fact, NeverRan, Objection, Sealed, World
from dayfly.spec.identity import nonce
from dayfly.spec.lifecycle import CREATING, Unit, digest
from dayfly.spec.run import State, UnitRecord

log = logging.getLogger(__name__)

RUNNERS = "dayfly-runners"
REFUSED_AGAIN_S = 5.0
# Beside the outputs in their Secret: the end of the log. No output can have a name with a dot.
LOG_KEY = "log.tail"


class PlanLostError(Exception):
    """A document that the run has pinned is not there as it was: nothing is decided without it."""


class Sight(msgspec.Struct):
    """One turn's view beside the scene: the very objects, so that effects can name them."""

    run: RunObject
    pods: dict[AttemptKey, Pod]
    values: dict[AttemptKey, dict[str, bytes]]


class Lifecycles:
    """The host of turns in a cluster. Any number may be active at once."""

    def __init__(self, cluster: Cluster, *, runner: str, restricted: bool = True) -> None:
        self._cluster = cluster
        self._client = cluster.client
        self._pods = Pods(cluster.client)
        self._targets = Targets(cluster)
        self._followers = Followers(cluster.client, cluster.queue.add)
        self._runner = runner
        self._restricted = restricted
        self._plans: dict[tuple[str, str], Plan] = {}
        self._sights: dict[str, Sight] = {}
        self._scenes: dict[str, Scene] = {}
        self._refused: dict[tuple[str, str, int], Objection | NeverRan] = {}

    def last(self, run: str) -> Scene | None:
        """What the latest turn of that run saw, with the ledger as it is now."""
        found = self._cluster.ledger.get(run)
        scene = self._scenes.get(found.ledger.uid) if found else None
        if found is None or scene is None:
            return None
        return msgspec.structs.replace(scene, world=msgspec.structs.replace(scene.world, run=found.ledger))

    def until(self, at: int) -> float:
        """Seconds from now until that moment (unix milliseconds)."""
        return max(at - _now(), 0) / 1000

    # --- gather -----------------------------------------------------------------------------------------------------

    async def gather(self, run: str) -> Scene | None:
        found = self._cluster.ledger.get(run)
        if found is None:
            return None
        plan = self._plan(found)
        if not found.ledger.units and not await self._targets.fence(found):
            return None
        now = _now()
        sight = Sight(run=found, pods=self._pods_of(found, plan), values={})
        facts: dict[AttemptKey, Fact] = {}
        for (name, attempt), pod in sight.pods.items():
            facts[name, attempt] = await self._read(sight, plan, name, attempt, pod, now)
        await self._missing(sight, plan, facts)
        self._sights[found.ledger.uid] = sight
        scene = self._scenes[found.ledger.uid] = Scene(
            plan=plan,
            world=World(
                run=found.ledger,
                wish=await self._targets.wish(found),
                facts=facts,
                gated=True,
                objections=self._objections(found, facts),
            ),
            now=now,
        )
        return scene

    def _plan(self, run: RunObject) -> Plan:
        """The sealed documents, if they are still those that were pinned."""
        key = run.metadata.uid, digest(run.spec.forks)
        plan = self._plans.get(key)
        if plan is not None:
            return plan
        documents = []
        for pin in run.spec.documents:
            found = self._cluster.documents.get(pin.name)
            if found is None or found.metadata.uid != pin.uid or digest(found.spec) != pin.digest:
                raise PlanLostError(
                    f"document {pin.name} of run {run.metadata.name} is not the one that was sealed; "
                    "restore it, or abandon the run"
                )
            documents.append(found.spec)
        plan = self._plans[key] = seal(tuple(documents), run.spec.forks)
        return plan

    def _pods_of(self, run: RunObject, plan: Plan) -> dict[AttemptKey, Pod]:
        pods = {pod.metadata.name: pod for pod in self._cluster.pods.labelled(names.RUN_LABEL, run.metadata.name)}
        found: dict[AttemptKey, Pod] = {}
        for name in plan.steps:
            for attempt in range(1, run.ledger.unit(name).attempt + 2):
                pod = pods.pop(names.pod_name(run.ledger.uid, name, attempt), None)
                if pod is not None:
                    found[name, attempt] = pod
        return found

    async def _read(  # the pod's own facts, and the outputs that belong to them
        self, sight: Sight, plan: Plan, name: str, attempt: int, pod: Pod, now: int
    ) -> Fact:
        record, unit = sight.run.ledger.unit(name), plan.steps[name].unit
        if (
            attempt == record.attempt
            and record.state in (State.CLAIMED, State.UNKNOWN)
            and pod.metadata.uid != record.ref
        ):
            return read.gone(record, unit)
        if sealed := self._sealed(sight, plan, name, attempt, pod):
            return sealed
        seen = read.pod(pod, unit=unit, record=record, nonce=nonce(sight.run.ledger.uid, name, attempt), now=now)
        current = attempt == record.attempt and record.state is not State.DONE
        if isinstance(seen.fact, (Ended, Sealed)) and current:
            return await self._with_values(sight, (name, attempt), seen, pod)
        return seen.fact

    def _sealed(self, sight: Sight, plan: Plan, name: str, attempt: int, pod: Pod) -> Sealed | None:
        """What the followed log has told, as long as the attempt is not recorded and its pod has not ended."""
        record = sight.run.ledger.unit(name)
        if attempt != record.attempt or record.state not in (State.CLAIMED, State.UNKNOWN):
            return None
        self._followers.follow(pod, sight.run.metadata.name)
        heard = self._followers.sealed(pod.metadata.uid)
        if heard is None or heard.records is None:
            return None
        unit = plan.steps[name].unit
        told = receipt.understand(heard.records, nonce=nonce(sight.run.ledger.uid, name, attempt), unit=unit)
        if not isinstance(told, Ended) or told.result.reason == Reason.LOST:
            return None
        sight.values[name, attempt] = heard.contents()
        return Sealed(result=told.result)

    async def _with_values(self, sight: Sight, key: AttemptKey, seen: read.Seen, pod: Pod) -> Fact:
        fact = seen.fact
        assert isinstance(fact, (Ended, Sealed)), "only an end has outputs"
        values = dict(seen.values)
        if seen.in_log:
            values |= await self._pods.contents(pod, seen.log_digest) or {}
        lost = [name for name in fact.result.outputs if name not in values]
        if lost:
            result = msgspec.structs.replace(
                fact.result,
                outcome="failed",
                reason="OutputsLost",
                message=f"output {lost[0]} was written, but its bytes could not be read from the pod's log",
                outputs={},
            )
            return type(fact)(result=result)
        sight.values[key] = values
        return fact

    async def _missing(self, sight: Sight, plan: Plan, facts: dict[AttemptKey, Fact]) -> None:
        """Claimed attempts of which the cache has no pod: only a quorum read may say that it is gone."""
        for name, record in sight.run.ledger.units.items():
            alive = record.state in (State.CLAIMED, State.UNKNOWN)
            if not alive or (name, record.attempt) in facts or name not in plan.steps:
                continue
            unit = plan.steps[name].unit
            pod = await self._fresh_pod(names.pod_name(sight.run.ledger.uid, name, record.attempt), unit)
            if pod is None or pod.metadata.uid != record.ref:
                facts[name, record.attempt] = read.gone(record, unit)
            else:
                sight.pods[name, record.attempt] = pod
                facts[name, record.attempt] = await self._read(sight, plan, name, record.attempt, pod, _now())

    async def _fresh_pod(self, name: str, unit: Unit) -> Pod | None:
        try:
            return await self._client.get(PODS, name, _namespace(unit))
        except errors.NotFound:
            return None

    def _objections(self, run: RunObject, facts: dict[AttemptKey, Fact]) -> dict[str, Objection]:
        """What the API server said to the last try of creating a pod; a refusal for good is the fact `NeverRan`."""
        found = {}
        for (uid, name, attempt), said in list(self._refused.items()):
            if uid != run.ledger.uid or run.ledger.unit(name).attempt >= attempt:
                continue
            if isinstance(said, NeverRan):
                facts[name, attempt] = said
            elif _now() < said.since + REFUSED_AGAIN_S * 1000:
                found[name] = said
        return found

    # --- commit -----------------------------------------------------------------------------------------------------

    async def commit(self, scene: Scene, moves: tuple[Move, ...]) -> bool:
        sight = self._sights[scene.world.run.uid]
        for move in moves:
            if isinstance(move, Record):
                await self._keep_values(sight, scene.plan, move)
        return await self._cluster.ledger.commit(sight.run, scene.plan, moves)

    async def _keep_values(self, sight: Sight, plan: Plan, move: Record) -> None:
        """Write the outputs before the ledger speaks of them: one immutable Secret for each attempt."""
        values = dict(sight.values.get((move.unit, move.attempt), {}) if move.result.outputs else {})
        pod = sight.pods.get((move.unit, move.attempt))
        if pod is not None:
            values[LOG_KEY] = self._followers.tail(pod.metadata.uid)
        name = names.values_name(sight.run.ledger.uid, move.unit, move.attempt)
        namespace = _namespace(plan.steps[move.unit].unit)
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "labels": {names.RUN_LABEL: sight.run.metadata.name},
                "ownerReferences": [_owner(sight.run)],
            },
            "immutable": True,
            "type": "dayfly.dev/outputs",
            "data": {key: base64.b64encode(value).decode() for key, value in values.items()},
        }
        try:
            await self._client.create(SECRETS, body, namespace)
        except (errors.AlreadyExists, errors.OutcomeUnknown):
            # The name is derived and the Secret immutable: an earlier try of ours, if it reads the same.
            found = await self._client.get(SECRETS, name, namespace)
            if {k: v for k, v in (found.data or {}).items() if k != LOG_KEY} != {
                k: v for k, v in values.items() if k != LOG_KEY
            }:
                raise

    # --- perform ----------------------------------------------------------------------------------------------------

    async def perform(self, scene: Scene, effect: Effect) -> None:
        sight = self._sights[scene.world.run.uid]
        match effect:
            case Prepare(unit=unit, attempt=attempt):
                await self._prepare(sight, scene, unit, attempt)
            case Launch(unit=unit, attempt=attempt):
                await self._pods.let_go(sight.pods[unit, attempt])
            case Fence(unit=unit, attempt=attempt) | Cancel(unit=unit, attempt=attempt):
                if pod := sight.pods.get((unit, attempt)):
                    await self._pods.remove(pod)
            case Release(unit=unit, attempt=attempt):
                if pod := sight.pods.get((unit, attempt)):
                    self._followers.forget(pod.metadata.uid)
                    await self._pods.release(pod)
            case Dissolve():
                await self._dissolve(sight)
            case _:
                assert_never(effect)

    async def _prepare(self, sight: Sight, scene: Scene, name: str, attempt: int) -> None:
        run = sight.run
        unit = scene.plan.steps[name].unit
        key = run.ledger.uid, name, attempt
        try:
            await self._pods.prepare(render(unit, self._attempt(sight, scene, name, attempt)))
            self._refused.pop(key, None)
        except CannotRenderError as error:
            self._refuse(run, key, NeverRan(reason=error.reason, message=str(error)))
        except ForeignPodError as error:
            self._refuse(run, key, Objection(reason="NameTaken", message=str(error), since=_now()))
        except errors.Invalid as error:
            self._refuse(run, key, NeverRan(reason="Invalid", message=error.message))
        except errors.Refused as error:
            # Quota, admission, a missing namespace: somebody may mend it while we wait.
            self._refuse(run, key, Objection(reason=error.reason or "Refused", message=error.message, since=_now()))

    def _refuse(self, run: RunObject, key: tuple[str, str, int], said: Objection | NeverRan) -> None:
        self._refused[key] = said
        self._cluster.queue.add(run.metadata.name, after=0.0 if isinstance(said, NeverRan) else REFUSED_AGAIN_S)

    def _attempt(self, sight: Sight, scene: Scene, name: str, number: int) -> PodAttempt:
        run, step = sight.run, scene.plan.steps[name]
        inputs: dict[str, bytes | SecretKey | None] = {}
        for item in step.unit.inputs:
            if item.from_ is None:
                inputs[item.name] = None if item.value is None else item.value.encode()
                continue
            producer = f"{item.from_.resource or step.resource}/{item.from_.unit}".removeprefix("/")
            record = run.ledger.unit(producer)
            inputs[item.name] = _where(run, producer, record, item.from_.output)
        creating = [other for other in scene.plan.steps.values() if other.resource == step.resource]
        limits = step.unit.timeouts
        return PodAttempt(
            run=run.ledger.uid,
            run_name=run.metadata.name,
            owner=_owner(run),
            resource=step.resource,
            unit=name,
            number=number,
            inputs=inputs,
            complete=all(
                run.ledger.unit(other.id).outcome == "succeeded" for other in creating if other.event in CREATING
            ),
            namespace=_namespace(step.unit),
            runner=self._runner,
            restricted=self._restricted,
            start_before=_now() + limits.schedule_ms + limits.pull_ms,
        )

    async def _dissolve(self, sight: Sight) -> None:
        """Let the target go, then the documents, then the ledger."""
        run = sight.run
        await self._targets.release(run)
        await self._targets.release_documents(run)
        await self._cluster.drop_finalizer(RUNS, run.metadata, RUN_FINALIZER)
        with contextlib.suppress(errors.NotFound, errors.Conflict):
            await self._client.delete(RUNS, run.metadata.name, uid=run.metadata.uid)
        self._cluster.ledger.forget(run.metadata.name)
        self._sights.pop(run.ledger.uid, None)
        self._scenes.pop(run.ledger.uid, None)


def _where(run: RunObject, producer: str, record: UnitRecord, output: str) -> SecretKey | None:
    if output not in record.outputs:
        return None
    return SecretKey(names.values_name(run.ledger.uid, producer, record.attempt), output)


def _namespace(unit: Unit) -> str:
    """`signadot` is the name that existing plugins know our runners' namespace by."""
    wished = unit.exec.namespace if unit.exec else ""
    return RUNNERS if wished in ("", "signadot") else wished


def _owner(run: RunObject) -> dict[str, Any]:
    return {
        "apiVersion": run.api_version,
        "kind": run.kind,
        "name": run.metadata.name,
        "uid": run.metadata.uid,
        "blockOwnerDeletion": False,
    }


def _now() -> int:
    return time.time_ns() // 1_000_000
