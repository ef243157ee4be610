"""What is said of a published plugin: once, of that very one, from its first moment on."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import pytest
from rig.scenes import CHAIN

from dayfly.kube import errors
from dayfly.operator.cluster.objects import PluginObject
from dayfly.operator.front.plugins import Plugins
from dayfly.plan.reasons import Reason

BORN = "2026-01-01T00:00:00Z"
BAD = {**CHAIN, "runner": {"image": "busybox:1", "podTemplateOverlay": "spec: {hostPID: true}"}}
TWICE = {**CHAIN, "create": [CHAIN["create"][0], CHAIN["create"][0]]}


class Bench:
    """Plugins that are published, and what is said of them."""

    def __init__(self) -> None:
        self.there: dict[str, PluginObject] = {}
        self.said: list[dict] = []
        self.fault: Exception | None = None
        cluster = SimpleNamespace(
            plugins=SimpleNamespace(get=self.there.get), client=SimpleNamespace(patch=self._patch)
        )
        self.plugins = Plugins(cluster)

    async def _patch(self, _kind, patch, name, *, subresource):
        assert (name, subresource) == ("pg", "status")
        if self.fault:
            raise self.fault
        self.said.append({"uid": patch["metadata"]["uid"], **patch["status"]})

    async def look(self, spec: dict | None = CHAIN, uid: str = "p") -> None:
        if spec is None:
            self.there.clear()
        else:
            meta = {"name": "pg", "uid": uid, "generation": 2, "creationTimestamp": BORN}
            self.there["pg"] = msgspec.convert({"metadata": meta, "spec": {"name": "pg", **spec}}, PluginObject)
        await self.plugins.reconcile("pg")


@pytest.mark.parametrize(
    ("spec", "accepted", "said"),
    [
        (CHAIN, True, "sandboxes can use it"),
        (BAD, False, "spec.hostPID must be false; change spec.runner.podTemplateOverlay"),
        (TWICE, False, "spec.create[1].name: the step name"),
    ],
    ids=["good", "overlay", "twice"],
)
async def test_whether_it_can_be_used_holds_from_its_first_moment(spec, accepted, said):
    bench = Bench()
    await bench.look(spec)
    [told] = bench.said
    assert (told["uid"], told["accepted"], told["observedGeneration"]) == ("p", accepted, 2)
    assert told["reason"] == (Reason.ACCEPTED if accepted else Reason.REFUSED)
    assert said in told["message"]
    [condition] = told["conditions"]
    assert (condition["type"], condition["status"]) == ("Accepted", str(accepted))
    assert (condition["lastTransitionTime"], condition["observedGeneration"]) == (BORN, 2)


async def test_it_is_said_once_of_each():
    bench = Bench()
    for uid in ("p", "p", "another"):
        await bench.look(uid=uid)
    assert [told["uid"] for told in bench.said] == ["p", "another"]


async def test_one_that_is_published_again_is_another_whatever_it_is_called():
    bench = Bench()
    await bench.look()
    await bench.look(None)
    assert bench.plugins._said == {}


@pytest.mark.parametrize(
    "fault", [errors.NotFound("PATCH", "gone", status=404), errors.Conflict("PATCH", "moved", status=409)]
)
async def test_what_could_not_be_said_is_said_with_the_next_news(fault):
    bench = Bench()
    bench.fault = fault
    await bench.look()
    bench.fault = None
    await bench.look()
    assert len(bench.said) == 1
