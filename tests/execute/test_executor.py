"""What a registry of executors refuses before anything is sealed."""

import pytest

from dayfly.execute.executor import Known, Registry
from dayfly.plan.actions import Cancel, Fence, Launch, Prepare, Recall, Release
from dayfly.plan.reasons import Reason
from dayfly.plan.sealed import seal
from dayfly.plan.world import Running
from dayfly.spec.lifecycle import Exec, Kind, Lifecycle, Target, Unit
from dayfly.spec.wire import RefusedError

TARGET = Target(kind="Sandbox", name="s", uid="u")


class Executor:
    """Takes whatever it is asked to."""

    gated = False

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.admitted = []
        self.asked = []

    def admit(self, name, unit):
        self.admitted.append(name)

    def __getattr__(self, name):
        """Whatever else it is asked for is noted."""

        async def note(*_):
            self.asked.append(name)

        return note


@pytest.mark.parametrize("kind", Kind)
def test_a_unit_that_does_not_say_what_to_do_is_refused_on_every_host(kind):
    """Also one that is kept, whose very name is of what it derives from."""
    executor = Executor(kind)
    document = Lifecycle(target=TARGET, resource="db", pre_start=(Unit(name="make", kind=kind),))
    for given, name in (((document,), ()), "db/make"), (((), (Unit(name="web", kind=kind),)), "web"):
        with pytest.raises(RefusedError, match=rf"^{name}: a unit of kind {kind} needs a \w+, and this one has none$"):
            Registry(executor).admit(*given)
    assert executor.admitted == []


def test_a_kind_of_somebody_elses_is_its_executors_affair():
    toy, steps = Executor("toy"), Executor(Kind.EXEC)
    units = (Unit(name="play", kind="toy"), Unit(name="make", kind=Kind.EXEC, exec=Exec(script="#!/bin/sh\n")))
    Registry(toy, steps).admit((Lifecycle(target=TARGET, resource="db", pre_start=units),), ())
    assert (toy.admitted, steps.admitted) == (["db/play"], ["db/make"])


def test_a_kind_that_the_host_does_not_know_is_named():
    document = Lifecycle(target=TARGET, resource="db", pre_start=(Unit(name="play", kind="toy"),))
    with pytest.raises(RefusedError, match=r"^db/play: .*toy"):
        Registry(Executor(Kind.EXEC)).admit((document,), ())


async def test_each_of_them_hears_of_a_turn_and_of_its_end():
    executors = [Executor("toy"), Executor(Kind.EXEC)]
    registry = Registry(*executors)
    for asked in (registry.observe, registry.keep, registry.clear):
        await asked(None)
    await registry.close()
    assert [each.asked for each in executors] == [["observe", "keep", "clear", "close"]] * 2


@pytest.mark.parametrize("asked", ["keep", "clear"])
async def test_a_refusal_of_one_kind_is_raised_when_all_were_asked_and_other_trouble_at_once(asked):
    class Failing(Executor):
        async def keep(self, _view):
            raise self.kind

        clear = keep

    last, first, second = Executor("last"), PermissionError("first"), PermissionError("second")
    registry = Registry(Failing(first), Failing(second), last, refusals=(PermissionError,))
    with pytest.raises(PermissionError, match="first"):
        await getattr(registry, asked)(None)
    assert last.asked == [asked]
    registry = Registry(Failing(OSError("trouble")), last, refusals=(PermissionError,))
    with pytest.raises(OSError, match="trouble"):
        await getattr(registry, asked)(None)
    assert last.asked == [asked]


async def test_an_effect_is_its_own_executors_affair():
    toy, steps = Executor("toy"), Executor(Kind.EXEC)
    registry = Registry(toy)
    registry.add(steps)
    why = {"reason": "r", "message": "m"}
    for effect in (
        Prepare(unit="a", attempt=1),
        Launch(unit="a", attempt=1),
        Recall(unit="a", attempt=1),
        Fence(unit="a", attempt=1, **why),
        Cancel(unit="a", attempt=1, **why),
        Release(unit="a", attempt=1),
    ):
        await registry.perform(None, Kind.EXEC, effect)
        await registry.perform(None, "nobody's", effect)
    assert (toy.asked, steps.asked) == ([], ["prepare", "launch", "recall", "fence", "cancel", "release"])


def test_what_was_sealed_elsewhere_and_cannot_be_run_here_waits_and_says_so():
    class Knowing(Executor):
        def known(self, _view):
            return Known(facts={("a", 1): Running(since=1)}, outputs={("a", 1): {"o": b"1"}})

    document = Lifecycle(target=TARGET, resource="db", pre_start=(Unit(name="play", kind="toy"),))
    found = Registry(Knowing(Kind.EXEC)).known(None, seal((document,)))
    assert (found.facts, found.outputs) == ({("a", 1): Running(since=1)}, {("a", 1): {"o": b"1"}})
    assert {unit: why.reason for unit, why in found.objections.items()} == {"db/play": Reason.UNSUPPORTED_KIND}
    assert "toy" in found.objections["db/play"].message


def test_which_kinds_are_prepared_before_they_are_claimed():
    gated = Executor("toy")
    gated.gated = True
    registry = Registry(gated, Executor(Kind.EXEC))
    assert (registry.gated, registry.find("toy"), registry.find("other")) == ({"toy"}, gated, None)
