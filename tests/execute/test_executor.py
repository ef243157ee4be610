"""What a registry of executors refuses before anything is sealed."""

import pytest

from dayfly.execute.executor import Registry
from dayfly.spec.lifecycle import Exec, Kind, Lifecycle, Target, Unit
from dayfly.spec.wire import RefusedError

TARGET = Target(kind="Sandbox", name="s", uid="u")


class Executor:
    """Takes whatever it is asked to."""

    gated = False

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.admitted = []

    def admit(self, name, unit):
        self.admitted.append(name)


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
