"""Values of forks for the hooks of their sandbox on this machine: names, addresses, readiness, and missing values."""

from types import SimpleNamespace

import pytest
from tests.embedded import documents as doc
from tests.embedded.machine import until
from tests.embedded.test_forks import NAME, declare, port

from dayfly.embedded.forks import BaselineProcesses, fork_values
from dayfly.execute.inputs import ForkAddressUnknownError
from dayfly.plan.reasons import Reason
from dayfly.spec.lifecycle import As, Baseline, ForkValue, UnitInput
from dayfly.spec.run import Run, State, UnitRecord
from dayfly.spec.workload import Workload

OF = Baseline(kind="Deployment", namespace="default", name="app")


def told(name, expression):
    return UnitInput(name=name, fork=ForkValue(fork_of=OF, expression=expression), as_=As(env=name.upper()))


READS = (
    told("where", "http://{{.Service.Host}}:{{ .Service.Port }}/"),
    told("who", "{{.Name}}"),
    told("answers", "{{.Ready}}"),
)
SAY = 'echo "$WHERE $WHO $ANSWERS absent:$DAYFLY_ABSENT_INPUTS" >> "$JOURNAL.%s"'
HOOKS = doc.hooks(
    post_start=[doc.step("warm", SAY % "warm", inputs=READS)], pre_stop=[doc.step("drain", SAY % "drain", inputs=READS)]
)


def said(machine, name):
    return machine.journal.with_name(f"{machine.journal.name}.{name}").read_text()


class TestTelling:
    def told(self, *, state=State.CLAIMED, kept=True, port=80):
        """Return the values of a run whose fork has a port."""
        baselines = BaselineProcesses()
        baselines.put(Workload(name="app", command=("app",), port=port))
        plan = SimpleNamespace(kept={NAME: SimpleNamespace(unit=doc.fork())} if kept else {})
        run = Run(uid="u", target=doc.TARGET, plan="", units={NAME: UnitRecord(attempt=1, state=state)})
        return fork_values(run, plan, baselines, SimpleNamespace(find=lambda *_: 40001), lambda _: True)

    def test_fork_values_include_address_name_and_readiness(self):
        assert [self.told()(item.fork) for item in READS] == ["http://127.0.0.1:40001/", "app", "true"]

    @pytest.mark.parametrize("lack", [{"kept": False}, {"state": State.DONE}, {"state": State.VOID}])
    def test_missing_fork_has_no_values(self, lack):
        for item in READS:
            with pytest.raises(ForkAddressUnknownError) as refused:
                self.told(**lack)(item.fork)
            assert refused.value.reason == Reason.WAITING_FOR_FORKS

    def test_baseline_without_port_gives_no_address(self):
        where, who, answers = READS
        told = self.told(port=0)
        assert (told(who.fork), told(answers.fork)) == ("app", "true")
        with pytest.raises(ForkAddressUnknownError) as refused:
            told(where.fork)
        assert refused.value.reason == Reason.FORK_WITHOUT_PORT


async def test_hooks_receive_address_and_readiness_of_a_fork(machine):
    await declare(machine)
    await machine.host.offer(doc.offer(HOOKS, forks=[doc.fork()]))
    await machine.ready()
    expected = f"http://127.0.0.1:{port(machine)}/ app true absent:\n"
    assert said(machine, "warm") == expected
    await machine.finish()
    assert said(machine, "drain") == expected


async def test_create_hook_waits_until_the_baseline_has_a_port(machine):
    await machine.baseline(command=("/bin/sh", "-c", "exec sleep 7200"), port=0)
    await machine.host.offer(doc.offer(HOOKS, forks=[doc.fork()]))
    await machine.said("warm", "ForkWithoutPort")
    assert "{{.Service." in machine.unit("warm").message
    assert "the baseline app has no port for its fork to listen on" in machine.unit("warm").message
    await declare(machine)
    await machine.ready()
    assert said(machine, "warm").startswith("http://127.0.0.1:")
    await machine.finish()


async def test_delete_hook_runs_without_a_port_with_absent_values(machine):
    await machine.baseline(command=("/bin/sh", "-c", "exec sleep 7200"), port=0)
    await machine.host.offer(doc.offer(HOOKS, forks=[doc.fork()]))
    await machine.said("warm", "ForkWithoutPort")
    await machine.finish()
    await until(lambda: said(machine, "drain"), "what it found")
    assert said(machine, "drain").startswith(" app ")
    assert said(machine, "drain").endswith(" absent:where\n")
    assert b"it is passed as absent" in machine.log("drain")
