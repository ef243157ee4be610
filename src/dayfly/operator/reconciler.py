"""Turns over Run objects: observe by the caches, decide, commit by compare-and-swap, bring effects about by UID."""

import logging

import msgspec

from dayfly.execute.pod.run import Pods
from dayfly.execute.turn import Scene
from dayfly.kube import errors
from dayfly.operator.cluster.caches import Cluster
from dayfly.operator.effects import Effects
from dayfly.operator.forks.fork_reconciler import ForkReconciler
from dayfly.operator.observe import Observer, PlanLostError, Sight
from dayfly.operator.outputs.outputs import Outputs, namespace_of
from dayfly.operator.pods.fallback_image import FallbackImage
from dayfly.operator.pods.follow import Followers
from dayfly.operator.pods.namespaces import Namespaces, Runner
from dayfly.operator.pods.pod_builder import PodBuilder
from dayfly.operator.refusals import Refusals
from dayfly.operator.status.step_logs import StepLogs
from dayfly.operator.sweeper import Sweeper
from dayfly.operator.targets.targets import Targets
from dayfly.plan.actions import Dissolve, Effect, Move, Record
from dayfly.plan.reasons import Reason

log = logging.getLogger(__name__)


class Reconciler:
    """The host of turns in a cluster. Any number may be active at once."""

    def __init__(self, cluster: Cluster, *, runner: Runner, fallback: FallbackImage) -> None:
        self._cluster = cluster
        self._targets = Targets(cluster)
        self.followers = Followers(cluster.client, cluster.queue.add)
        cluster.heeds = self.followers.wants
        self._outputs = Outputs(cluster.client)
        self._refusals, pods = Refusals(), Pods(cluster.client, cluster.pods.advance)
        self.logs = StepLogs(cluster)
        self._forks = ForkReconciler(cluster, self._refusals)
        self.sweeper = Sweeper(cluster, pods, self._targets, self._forks)
        builder = PodBuilder(cluster, Namespaces(cluster.client, runner, cluster.now), runner)
        self._observer = Observer(
            cluster,
            pods=pods,
            targets=self._targets,
            followers=self.followers,
            refusals=self._refusals,
            outputs=self._outputs,
            builder=builder,
            forks=self._forks,
        )
        self._effects = Effects(
            cluster,
            pods=pods,
            targets=self._targets,
            followers=self.followers,
            refusals=self._refusals,
            builder=builder,
            forks=self._forks,
            fallback=fallback,
        )
        self._sights: dict[str, Sight] = {}
        self._scenes: dict[str, Scene] = {}

    def last(self, run: str) -> Scene | None:
        """What the latest turn of that run saw, with the ledger and the objections as they are now."""
        found = self._cluster.ledger.get(run)
        scene = self._scenes.get(found.ledger.uid) if found else None
        if found is None or scene is None:
            return None
        objections = scene.world.objections | self._refusals.of(found.ledger, self._cluster.now())[0]
        world = msgspec.structs.replace(scene.world, run=found.ledger, objections=objections)
        return msgspec.structs.replace(scene, world=world)

    def again(self, run: str, wake_at: int) -> float:
        """Seconds from now after which the run is to be looked at even without news; 0 if only news can change it.

        `wake_at` is the decision's own moment, in unix milliseconds.
        """
        found = self._cluster.ledger.get(run)
        moments = [wake_at, self._refusals.again_at(found.ledger.uid) if found else 0]
        # A hair later, so that the moment has come for certain when we look.
        return min((max(at - self._cluster.now(), 0) / 1000 + 0.001 for at in moments if at), default=0.0)

    async def keep(self, run: str) -> None:
        """After a turn: what is kept as it is wished for, and not done once, is brought there.

        Raises:
            errors.ApiError: not all of it is.
        """
        found = self._cluster.ledger.get(run)
        sight = self._sights.get(found.ledger.uid) if found else None
        if found is not None and sight is not None:
            await self._forks.keep(sight.run, self._scenes[found.ledger.uid].plan, sight.forks)

    def rest(self, run: str) -> None:
        """Nothing is under way in that run: keep nothing of it in memory. Most sandboxes rest most of the time."""
        found = self._cluster.ledger.get(run)
        if found is not None and (sight := self._sights.pop(found.ledger.uid, None)):
            self._scenes.pop(found.ledger.uid, None)
            self._observer.forget(sight.run)

    async def close(self) -> None:
        """Follow no log any more."""
        await self.followers.close()

    async def observe(self, run: str) -> Scene | None:
        found = self._cluster.ledger.get(run)
        if found is None:
            self._forget(run)
            await self.sweeper.tidy(run)
            return None
        if not found.ledger.units and not await self._targets.fence(found):
            return None
        try:
            scene, sight = await self._observer.scene(found)
        except PlanLostError:
            # Documents go before their run does: only of a run that is as we saw it are they missed.
            now = await self._cluster.ledger.fresh(run)
            if now is not None and (now.metadata.uid, now.ledger.seq) == (found.metadata.uid, found.ledger.seq):
                raise
            if now is not None:
                self._cluster.queue.add(run)
            return None
        self._sights[found.ledger.uid], self._scenes[found.ledger.uid] = sight, scene
        return scene

    def _forget(self, run: str) -> None:
        """Of that name there is none any more: a peer has ended one at which we had begun to work."""
        for uid in [uid for uid, sight in self._sights.items() if sight.run.metadata.name == run]:
            self._observer.forget(self._sights.pop(uid).run)
            self._scenes.pop(uid, None)

    async def commit(self, scene: Scene, moves: tuple[Move, ...]) -> bool:
        sight = self._sights[scene.world.run.uid]
        for move in moves:
            if isinstance(move, Record) and not await self._keep(sight, scene, move):
                # What follows from its success does not follow from this: it is decided anew.
                await self._cluster.ledger.commit(sight.run, scene.plan, (_outputs_lost(move),))
                return False
        if not await self._cluster.ledger.commit(sight.run, scene.plan, moves):
            return False
        # The effects rest on these moves: a step that is made now reads outputs that were recorded just now.
        sight.run = self._cluster.ledger.get(sight.run.metadata.name) or sight.run
        return True

    async def _keep(self, sight: Sight, scene: Scene, move: Record) -> bool:
        """Outputs first: the ledger never speaks of what is not there. False if they cannot be kept, and never can."""
        key = move.unit, move.attempt
        pod = sight.pods.get(key)
        printed = await self.followers.printed(pod) if pod is not None else None
        values = sight.values.get(key, {}) if move.result.outputs else {}
        step = scene.plan.steps.get(move.unit)
        namespace = pod.metadata.namespace if pod is not None else namespace_of(step.unit) if step else ""
        if not namespace:
            return True  # its plan and its pod are lost: there is nothing to keep
        try:
            await self._outputs.keep(sight.run, (namespace, *key), move.result, values, printed[0] if printed else b"")
        except (errors.NotFound, errors.Forbidden) as error:
            # Its namespace is gone or going. How it ended is worth more than the end of its log.
            if isinstance(error, errors.Forbidden) and not error.namespace_ending:
                raise
            return not move.result.outputs
        self.logs.heard(sight.run, key, printed)
        return True

    async def perform(self, scene: Scene, effect: Effect) -> None:
        uid = scene.world.run.uid
        await self._effects.perform(scene, self._sights[uid], effect)
        if isinstance(effect, Dissolve):
            if sight := self._sights.pop(uid, None):
                self._observer.forget(sight.run)
            self._scenes.pop(uid, None)
            self.sweeper.freed()


def _outputs_lost(move: Record) -> Record:
    message = "its outputs could not be kept: the namespace in which it ran is being deleted"
    result = msgspec.structs.replace(
        move.result, outcome="failed", reason=Reason.OUTPUTS_LOST, message=message, outputs={}
    )
    return Record(unit=move.unit, attempt=move.attempt, result=result)
