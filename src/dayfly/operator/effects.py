"""Brings effects about: pods made, let go, ended and released by UID; the run dissolved when nothing is left to do."""

import contextlib
from typing import assert_never

from dayfly.execute.order import CannotRenderError
from dayfly.execute.pod import names, read
from dayfly.execute.pod.render import PodAttempt, SecretKey
from dayfly.execute.pod.render import pod as render
from dayfly.execute.pod.run import ForeignPodError, Pods
from dayfly.execute.turn import Scene
from dayfly.kube import errors
from dayfly.operator.cluster import Cluster
from dayfly.operator.follow import Followers
from dayfly.operator.gather import Sight
from dayfly.operator.objects import RUN_FINALIZER, RUNS
from dayfly.operator.refusals import Refusals
from dayfly.operator.targets import Targets
from dayfly.operator.values import namespace_of, owner, where
from dayfly.plan.actions import Cancel, Dissolve, Effect, Fence, Launch, Prepare, Release
from dayfly.plan.world import NeverRan, Objection
from dayfly.spec.lifecycle import CREATING


class Effects:
    """What a turn asks for, done to the cluster."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        pods: Pods,
        targets: Targets,
        followers: Followers,
        refusals: Refusals,
        runner: str,
        restricted: bool,
    ) -> None:
        self._cluster = cluster
        self._client = cluster.client
        self._pods = pods
        self._targets = targets
        self._followers = followers
        self._refusals = refusals
        self._runner = runner
        self._restricted = restricted

    async def perform(self, scene: Scene, sight: Sight, effect: Effect) -> None:
        """Bring one effect about, or begin to."""
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
        ledger, key = sight.run.ledger, (name, attempt)
        unit = scene.plan.steps[name].unit
        try:
            await self._pods.prepare(render(unit, self._attempt(sight, scene, name, attempt)))
            self._refusals.drop(ledger, key)
            return
        except CannotRenderError as error:
            said: NeverRan | Objection = NeverRan(reason=error.reason, message=str(error))
        except ForeignPodError as error:
            said = Objection(reason="NameTaken", message=str(error), since=self._cluster.now())
        except errors.Invalid as error:
            said = NeverRan(reason="Invalid", message=error.message)
        except errors.Refused as error:
            # Quota, admission, a missing namespace: somebody may mend it while we wait.
            said = Objection(reason=error.reason or "Refused", message=error.message, since=self._cluster.now())
        self._refusals.put(ledger, key, said)
        if isinstance(said, NeverRan):
            self._cluster.queue.add(sight.run.metadata.name)

    def _attempt(self, sight: Sight, scene: Scene, name: str, number: int) -> PodAttempt:
        run, step = sight.run, scene.plan.steps[name]
        inputs: dict[str, bytes | SecretKey | None] = {}
        for item in step.unit.inputs:
            if item.from_ is None:
                inputs[item.name] = None if item.value is None else item.value.encode()
                continue
            producer = f"{item.from_.resource or step.resource}/{item.from_.unit}".removeprefix("/")
            record = run.ledger.unit(producer)
            inputs[item.name] = where(run, producer, record, item.from_.output)
        creating = [other for other in scene.plan.steps.values() if other.resource == step.resource]
        limits = step.unit.timeouts
        return PodAttempt(
            run=run.ledger.uid,
            run_name=run.metadata.name,
            owner=owner(run),
            resource=step.resource,
            unit=name,
            number=number,
            inputs=inputs,
            complete=all(
                run.ledger.unit(other.id).outcome == "succeeded" for other in creating if other.event in CREATING
            ),
            namespace=namespace_of(step.unit),
            runner=self._runner,
            restricted=self._restricted,
            start_before=self._cluster.now() + limits.schedule_ms + limits.pull_ms,
        )

    async def _dissolve(self, sight: Sight) -> None:
        """Let the target go, then the documents, then the ledger."""
        run = sight.run
        for pod in self._cluster.pods.labelled(names.RUN_LABEL, run.metadata.name):
            if read.gated(pod):  # made by a peer that never claimed it, and now nobody can
                await self._pods.release(pod)
        await self._targets.release(run)
        await self._targets.release_documents(run)
        await self._cluster.drop_finalizer(RUNS, run.metadata, RUN_FINALIZER)
        with contextlib.suppress(errors.NotFound, errors.Conflict):
            await self._client.delete(RUNS, run.metadata.name, uid=run.metadata.uid)
        self._cluster.ledger.forget(run.metadata.name)
        self._refusals.forget(run.ledger.uid)
