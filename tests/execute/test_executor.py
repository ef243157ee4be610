"""The registry of executors: refused units, and refusals of one executor."""

import pytest

from dayfly.execute.executor import Registry
from dayfly.spec.host_errors import DocumentsRefusedError
from dayfly.spec.lifecycle import Kind, Lifecycle, Target, Unit

TARGET = Target(kind="Sandbox", name="s", uid="u")


class Executor:
    """An executor that accepts everything."""

    gated = False

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.admitted = []
        self.asked = []

    def admit(self, name, unit):
        self.admitted.append(name)

    def __getattr__(self, name):
        """Record all other calls."""

        async def note(*_):
            self.asked.append(name)

        return note


@pytest.mark.parametrize("kind", Kind)
def test_unit_without_its_payload_is_refused_on_every_host(kind):
    """A kept unit is refused too, although its name contains its baseline."""
    executor = Executor(kind)
    document = Lifecycle(target=TARGET, resource="db", pre_start=(Unit(name="make", kind=kind),))
    for given, name in (((document,), ()), "db/make"), (((), (Unit(name="web", kind=kind),)), "web"):
        with pytest.raises(DocumentsRefusedError, match=rf"^{name}: a unit of kind {kind} needs a \w+, but has none$"):
            Registry(executor).admit(*given)
    assert executor.admitted == []


@pytest.mark.parametrize("asked", ["keep", "clear"])
async def test_refusal_of_a_kind_is_raised_after_the_others_ran(asked):
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
