"""The API server refuses the operator's next action repeatedly: the sandbox's status reports it."""

from __future__ import annotations

import pytest
from tests.kube.fake import Fault, Harm, Refusal
from tests.operator.rig.kubelet import Script
from tests.operator.rig.scenes import (
    RETRY,
    RETRY_UNITS,
    Scene,
    at_work,
    fork,
    forked,
    gone,
    plugin,
    ready,
    runs,
    step,
    wish,
)
from tests.operator.rig.world import Unit, World

from dayfly.operator import reconciler
from dayfly.operator.forks.fork_reconciler import ForkReconciler
from dayfly.operator.reconciler import Reconciler


class TestHindered:
    """Errors of the operator are in the sandbox's status until they are over."""

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
            assert (status["phase"], status["ready"], status["reason"]) == ("Deleting", False, "Blocked")
            before = len([each for each in world.writes if each.endswith("box/status")])
            await world.rest(600)
            assert len([each for each in world.writes if each.endswith("box/status")]) == before
            assert world.events()[-1] == ("Warning", "Blocked")
            world.cluster.admission.clear()
            await gone(world)

        at_work(story, Scene(RETRY, RETRY_UNITS, forked))

    def test_policy_against_finalizers_of_sandboxes_is_reported(self):
        """Without our finalizer nothing begins, so no turn reports anything."""

        def forbid(operation, kind, _old, new):
            if operation == "UPDATE" and kind.plural == "sandboxes" and new["metadata"].get("finalizers"):
                raise Refusal(403, "no finalizers here")

        async def story(world: World) -> None:
            world.cluster.admission.append(forbid)
            world.sandbox(wish())
            await world.until(lambda: "no finalizers here" in world.status().get("message", ""), "the policy", 15)
            assert (world.status()["ready"], world.status()["reason"]) == (False, "Blocked")
            world.cluster.admission.clear()
            await world.until(lambda: ready(world), "ready", 600)
            world.delete()
            await gone(world)

        at_work(story)

    def test_quota_of_secrets_where_steps_run(self):
        """The step has ended, but is not recorded before its outputs are stored."""

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
        """The operator cannot know whether the change was made; it never was."""
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
        """The bug is reported without its text, which may be sensitive. If that report fails, other runs continue."""

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
                    patched.setattr(reconciler, "describe", broken)
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
            assert ("Warning", "Blocked") not in world.events()
            world.delete()
            await gone(world)

        at_work(story)


class TestUnseen:
    """An object that cannot be read blocks neither the status nor the end of a sandbox."""

    ELSEWHERE = {"forkOf": {"kind": "Deployment", "namespace": "other", "name": "web"}}

    @staticmethod
    def refuse(request):
        """Answer like a server that fails in a namespace."""
        return Refusal(400, "cannot be read") if request.path == "/api/v1/namespaces/other" else None

    def test_refused_read_of_a_forks_namespace_is_reported(self):
        async def story(world: World) -> None:
            world.cluster.refuses = self.refuse
            world.sandbox(wish(forks=[self.ELSEWHERE]))
            await world.until(lambda: "cannot be read" in world.status().get("message", ""), "the refusal", 60)
            assert world.status()["ready"] is False
            world.change({"spec": {"forks": []}})
            await world.until(lambda: ready(world), "ready without that fork", 60)
            world.delete()
            await gone(world)

        at_work(story)

    @pytest.mark.parametrize("abandoned", [False, True])
    def test_unbegun_sandbox_that_cannot_be_observed_can_be_deleted(self, abandoned, monkeypatch):
        def broken(*_args, **_more):
            raise ValueError("db://1")

        async def story(world: World) -> None:
            monkeypatch.setattr(ForkReconciler, "observe", broken)
            world.sandbox({"forks": [{"forkOf": fork()["forkOf"]}]})
            told = "a bug in the operator, ValueError; see its log"
            await world.until(lambda: told in world.status().get("message", ""), "the defect", 60)
            assert (world.status()["phase"], world.status()["reason"]) == ("Pending", "Blocked")
            if abandoned:
                world.change({"metadata": {"annotations": {"dayfly.dev/abandon": "force: test"}}})
            else:
                world.delete()
            await world.until(lambda: world.box() is None, "gone", 120)
            monkeypatch.undo()
            await gone(world)
            world.cloud.violations.clear()  # the bug itself

        at_work(story)

    def test_abandoned_sandbox_that_cannot_be_observed_goes(self, monkeypatch):
        def broken(*_args, **_more):
            raise ValueError("db://1")

        async def story(world: World) -> None:
            world.forks.baseline()
            world.sandbox(wish(forks=[fork()]))
            await world.until(lambda: ready(world), "ready")
            monkeypatch.setattr(ForkReconciler, "observe", broken)
            world.delete()
            told = "a bug in the operator, ValueError; see its log"
            await world.until(lambda: told in world.status().get("message", ""), "the defect", 60)
            assert (world.status()["phase"], world.status()["reason"]) == ("Deleting", "Blocked")
            world.cloud.forgiven = True
            world.change({"metadata": {"annotations": {"dayfly.dev/abandon": "test"}}})
            await world.until(lambda: world.box() is None, "abandoned", 120)
            monkeypatch.undo()
            world.cloud.violations.clear()  # the bug itself

        at_work(story, Scene(RETRY, RETRY_UNITS, forked))

    def test_refused_effect_does_not_hold_up_the_others(self):
        """One pod cannot be deleted; the other resource is cleaned up nevertheless."""

        def forbid(operation, kind, old, _new):
            held = kind.plural == "pods" and old and old["metadata"]["annotations"].get("dayfly.dev/unit") == "a/make"
            if operation == "DELETE" and held:
                raise Refusal(403, "not this pod")

        units = {f"{name}/make": Unit(creates=True, undone_by=f"{name}/drop") for name in ("a", "db")}
        units |= {f"{name}/drop": Unit(creates=False) for name in ("a", "db")}
        made = plugin([step("make", idempotent=True)], [step("drop")])

        async def story(world: World) -> None:
            world.sandbox({"resources": [{"name": name, "plugin": "pg"} for name in ("a", "db")]})
            await world.until(lambda: runs(world, "a/make") and runs(world, "db/make"), "both steps")
            world.cluster.admission.append(forbid)
            world.delete()
            await world.until(lambda: "not this pod" in world.status()["message"], "the refusal", 60)
            await world.until(lambda: not world.pods("db/make"), "the end of the other step", 120)
            assert world.pods("a/make")
            world.cluster.admission.clear()
            await gone(world)

        slow = {f"{name}/make": Script(runs=3_000) for name in ("a", "db")}
        at_work(story, Scene(made, units, forked, slow))
