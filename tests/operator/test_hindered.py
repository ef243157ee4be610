"""The API server refuses what the operator does next, again and again: who waits for a sandbox is told."""

from __future__ import annotations

import pytest
from rig.scenes import RETRY, RETRY_UNITS, Scene, at_work, fork, forked, gone, ready, wish
from rig.world import World

from dayfly.operator import main
from dayfly.operator.reconciler import Reconciler
from kube.fake import Fault, Harm, Refusal


class TestHindered:
    """What keeps the operator itself from going on is said of the sandbox, and no longer once it goes on."""

    SAID = 'deployments.apps "x" is forbidden: User "system:serviceaccount:dayfly-system:dayfly-operator" cannot delete'

    def test_right_that_was_taken_away_in_a_forks_namespace(self):
        def forbid(operation, kind, _old, _new):
            if operation == "DELETE" and kind.plural == "deployments":
                raise Refusal(403, self.SAID)

        async def story(world: World) -> None:
            world.forks.baseline()
            world.sandbox(wish(forks=[fork()]))
            await world.until(lambda: ready(world), "ready")
            world.cluster.admission.append(forbid)
            world.delete()
            await world.until(lambda: self.SAID in world.status()["message"], "what stands in the way", 10)
            status = world.status()
            assert (status["phase"], status["ready"], status["reason"]) == ("Deleting", False, "Hindered")
            before = len([each for each in world.writes if each.endswith("box/status")])
            await world.rest(600)
            assert len([each for each in world.writes if each.endswith("box/status")]) == before
            assert world.events()[-1] == ("Warning", "Hindered")
            world.cluster.admission.clear()
            await gone(world)

        at_work(story, Scene(RETRY, RETRY_UNITS, forked))

    def test_policy_that_lets_nobody_hold_a_sandbox(self):
        """Without our finalizer on it nothing begins, and so no turn has anything to tell."""

        def forbid(operation, kind, _old, new):
            if operation == "UPDATE" and kind.plural == "sandboxes" and new["metadata"].get("finalizers"):
                raise Refusal(403, "no finalizers here")

        async def story(world: World) -> None:
            world.cluster.admission.append(forbid)
            world.sandbox(wish())
            await world.until(lambda: "no finalizers here" in world.status().get("message", ""), "the policy", 15)
            assert (world.status()["ready"], world.status()["reason"]) == (False, "Hindered")
            world.cluster.admission.clear()
            await world.until(lambda: ready(world), "ready", 600)
            world.delete()
            await gone(world)

        at_work(story)

    def test_quota_of_secrets_where_steps_run(self):
        """The step has ended; before its outputs are kept that is not recorded."""

        def quota(operation, kind, _old, new):
            if operation == "CREATE" and kind.plural == "secrets" and new["metadata"]["namespace"] == "dayfly-runners":
                raise Refusal(403, "exceeded quota: secrets, used: 9, limited: 9")

        async def story(world: World) -> None:
            world.cluster.admission.append(quota)
            world.sandbox(wish())
            await world.until(lambda: "exceeded quota: secrets" in world.status().get("message", ""), "the quota", 15)
            world.cluster.admission.clear()
            await world.until(lambda: ready(world), "ready", 600)
            world.delete()
            await gone(world)

        at_work(story)

    def test_webhook_that_does_not_answer(self):
        """To the operator that is a change of which nobody knows whether it was made; each time it was not."""
        said = 'failed calling webhook "mesh": connection refused'

        def broken(operation, kind, _old, _new):
            if operation == "CREATE" and kind.plural == "pods":
                raise Refusal(500, said)

        async def story(world: World) -> None:
            world.cluster.admission.append(broken)
            world.sandbox(wish())
            await world.until(lambda: said in world.status().get("message", ""), "the webhook", 15)
            world.cluster.admission.clear()
            await world.until(lambda: ready(world), "ready", 600)
            world.delete()
            await gone(world)

        at_work(story)

    @pytest.mark.parametrize("where", ["turn", "words"])
    def test_defect_of_our_own(self, where, monkeypatch):
        """Said without its text, which may hold anything; where it keeps even that from being said, the others go on."""

        def broken(*_args, **_more):
            raise ValueError("db://1")

        async def story(world: World) -> None:
            world.sandbox(wish(), "other")
            await world.until(lambda: ready(world, "other"), "ready")
            world.sandbox(wish())
            await world.until(lambda: world.cloud.starts("db/make") == 2, "the first step")
            with monkeypatch.context() as patched:
                if where == "turn":
                    patched.setattr(Reconciler, "perform", broken)
                    told = "a bug in the operator, ValueError; see its log"
                    await world.until(lambda: told in world.status()["message"], "the defect", 20)
                else:
                    patched.setattr(main, "describe", broken)
                    await world.rest(60)
            assert len(world.processes) == 1
            await world.until(lambda: ready(world), "ready", 600)
            assert "db://1" not in str(world.events())
            world.cloud.violations.clear()
            world.delete()
            world.delete("other")
            await gone(world)

        at_work(story)

    def test_trouble_that_passes_soon_is_not_said(self):
        async def story(world: World) -> None:
            lost = []

            def trouble(_number, call):
                if call.write is None or "/pods" not in call.request.path or len(lost) > 2:
                    return None
                lost.append(call)
                return Fault(Harm.TROUBLE_BEFORE)

            world.hook = trouble
            world.sandbox(wish())
            await world.until(lambda: ready(world), "ready")
            assert lost
            assert ("Warning", "Hindered") not in world.events()
            world.delete()
            await gone(world)

        at_work(story)
