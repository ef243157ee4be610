"""Brings effects about: pods made, let go, ended and released by UID; the run dissolved when nothing is left to do."""

import contextlib
from typing import assert_never

from dayfly.execute.order import CannotRenderError
from dayfly.execute.pod import read
from dayfly.execute.pod.run import ForeignPodError, Pods
from dayfly.execute.turn import Scene
from dayfly.kube import errors
from dayfly.kube.objects import Pod
from dayfly.operator.cluster.caches import Cluster, belonging
from dayfly.operator.cluster.objects import RUN_FINALIZER, RUNS
from dayfly.operator.forks.fork_reconciler import ForkReconciler
from dayfly.operator.pods import input_pins
from dayfly.operator.pods.fallback_image import FallbackImage
from dayfly.operator.pods.follow import Followers
from dayfly.operator.pods.namespaces import NotGrantedError
from dayfly.operator.pods.pod_builder import PodBuilder, RefusedPodError
from dayfly.operator.session import Session, Sight
from dayfly.operator.targets.targets import Targets
from dayfly.plan.actions import Cancel, Dissolve, Effect, Fence, Launch, Prepare, Recall, Release
from dayfly.plan.reasons import Reason
from dayfly.plan.world import NeverRan, Objection
from dayfly.spec.lifecycle import Kind


class Effects:
    """What a turn asks for, done to the cluster."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        pods: Pods,
        targets: Targets,
        followers: Followers,
        builder: PodBuilder,
        forks: ForkReconciler,
        fallback: FallbackImage,
    ) -> None:
        self._cluster = cluster
        self._client = cluster.client
        self._pods = pods
        self._targets = targets
        self._followers = followers
        self._builder = builder
        self._forks = forks
        self._fallback = fallback

    async def perform(self, scene: Scene, sight: Sight, effect: Effect) -> None:
        """Bring one effect about, or begin to."""
        if not isinstance(effect, Dissolve) and scene.kind(effect.unit) == Kind.FORK:
            await self._fork(scene, sight, effect)
            return
        match effect:
            case Prepare(unit=unit, attempt=attempt, ahead=ahead):
                if await self._free(sight, scene, effect):
                    await self._prepare(sight, scene, unit, attempt, ahead=ahead)
            case Launch(unit=unit, attempt=attempt):
                await self._pods.let_go(sight.pods[unit, attempt])
            case Fence() | Recall() | Cancel() | Release():
                if pod := sight.pods.get((effect.unit, effect.attempt)):
                    await self._end(sight.session, pod, effect)
            case Dissolve():
                await self._dissolve(sight)
            case _:
                assert_never(effect)

    async def _end(self, session: Session, pod: Pod, effect: Fence | Recall | Cancel | Release) -> None:
        match effect:
            case Fence() | Cancel():
                await self._pods.remove(pod)
            case Recall():
                image = await self._fallback.image()
                if not (image and await self._pods.recall(pod, image, self._cluster.now())):
                    await self._pods.remove(pod)
            case Release():
                self._followers.forget(pod.metadata.uid)
                session.pods.pop(pod.metadata.uid, None)
                await self._pods.release(pod)

    async def _free(self, sight: Sight, scene: Scene, effect: Prepare) -> bool:
        """Take away a pod of that name that waits for what will never be recorded, or has waited for too long."""
        step = scene.plan.steps[effect.unit]
        if effect.ahead and not input_pins.label(sight.run, step):
            return False
        pod = sight.pods.get((effect.unit, effect.attempt))
        if pod is not None and read.gated(pod):
            if input_pins.fits(sight.run, step, pod, scene.now) or input_pins.newer(sight.run, step, pod):
                return False
            await self._pods.release(pod)
        return True

    async def _prepare(self, sight: Sight, scene: Scene, name: str, attempt: int, *, ahead: bool) -> None:
        run, key = sight.run, (name, attempt)
        now = self._cluster.now()
        try:
            made = await self._builder.manifest(run, scene.plan, name, attempt)
            stored = await self._pods.prepare(made)
            if stored is not None:
                sight.session.pod(stored["metadata"]["uid"]).judged = self._builder.judge(stored, made)
            sight.session.refusals.drop(key)
            return
        except CannotRenderError as error:
            said: NeverRan | Objection = NeverRan(reason=error.reason, message=str(error))
        except RefusedPodError as error:
            said = Objection(reason=Reason.POD_REFUSED, message=str(error), since=now)
        except NotGrantedError as error:
            said = Objection(reason=error.reason, message=str(error), since=now)
        except ForeignPodError as error:
            said = Objection(reason=Reason.NAME_TAKEN, message=str(error), since=now)
        except errors.Refused as error:
            # Quota, admission, a field that only this server finds wrong: nothing was permitted, so nothing is owed.
            said = Objection(reason=error.reason or Reason.REFUSED, message=error.message, since=now)
        if ahead:
            return  # it is tried again, and said, when it is its turn
        sight.session.refusals.put(key, said)
        if isinstance(said, NeverRan):
            self._cluster.queue.add(run.metadata.name)

    async def _fork(
        self, scene: Scene, sight: Sight, effect: Prepare | Launch | Fence | Recall | Cancel | Release
    ) -> None:
        """The same for a fork. What a fork tells lies in nothing that would have to be released."""
        seen = sight.forks.seen.get(effect.unit)
        match effect:
            case Prepare(unit=unit, attempt=attempt):
                await self._forks.prepare(sight.run, scene.plan, (unit, attempt), sight.session.forks)
            case Launch() if seen is not None:
                await self._forks.let_go(sight.run, seen)
            case Fence() | Cancel() if seen is not None:
                await self._forks.remove(sight.run, seen)
            case _:
                pass

    async def _dissolve(self, sight: Sight) -> None:
        """Let the target go, then the documents, then the ledger."""
        run = sight.run
        for pod in belonging(self._cluster.pods, run.metadata.name):
            if read.gated(pod):  # made by a peer that never claimed it, and now nobody can
                await self._pods.release(pod)
        await self._forks.clear(run.metadata.name)
        await self._targets.release(run)
        await self._targets.release_documents(run)
        await self._cluster.drop_finalizer(RUNS, run.metadata, RUN_FINALIZER)
        with contextlib.suppress(errors.NotFound, errors.Conflict):
            await self._client.delete(RUNS, run.metadata.name, uid=run.metadata.uid)
        self._cluster.ledger.forget(run.metadata.name)
