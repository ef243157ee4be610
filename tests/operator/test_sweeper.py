"""Leftovers of a run that is gone: pods of a fork are deleted with the fork, others separately."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from dayfly.execute.fork.render import FORK_LABEL
from dayfly.execute.pod.names import GATE
from dayfly.kube import errors
from dayfly.kube.objects import ObjectMeta, OwnerReference, Pod, PodSpec, SchedulingGate
from dayfly.operator.sweeper import OrphanSweeper
from dayfly.operator.targets.adapter import UndecidableError

RUN = "box"


class Cache(list):
    """Return all objects that a run may own."""

    def labelled(self, _label: str, run: str) -> Cache:
        assert run == RUN
        return self


def pod(name: str, labels: dict[str, str] | None) -> Pod:
    """Return a pod that never began, so that it may be released."""
    owner = OwnerReference(api_version="dayfly.dev/v1alpha1", kind="Run", name=RUN, uid="r")
    spec = PodSpec(scheduling_gates=[SchedulingGate(name=GATE)])
    return Pod(metadata=ObjectMeta(name=name, labels=labels, owner_references=[owner]), spec=spec)


@pytest.mark.parametrize(("cached", "fresh", "goes"), [(True, True, False), (None, True, False), (None, None, True)])
async def test_the_pods_of_forks_are_left_to_their_forks(cached, fresh, goes):
    """The sweeper deletes nothing while such a run may exist."""
    done: list[tuple[str, str]] = []

    async def read(_run: str) -> object:
        return fresh

    def note(what: str):
        async def noted(of: str | Pod) -> None:
            done.append((what, of if isinstance(of, str) else of.metadata.name))

        return noted

    pods = Cache([pod("a", {FORK_LABEL: "f"}), pod("b", {}), pod("c", None)])
    cluster = SimpleNamespace(
        pods=pods,
        forks=Cache(),
        services=Cache(),
        gateway=SimpleNamespace(routes={}),
        vs_index=SimpleNamespace(with_rules_of=lambda _run: []),
        ledger=SimpleNamespace(get=lambda _run: cached, read_current=read),
    )
    parts = (SimpleNamespace(clear=note("forks")), SimpleNamespace(clear=note("routes")))
    sweeper = OrphanSweeper(cluster, SimpleNamespace(release=note("pod")), SimpleNamespace(), *parts)
    await sweeper.remove_orphans(RUN)
    assert done == ([("routes", RUN), ("forks", RUN), ("pod", "b"), ("pod", "c")] if goes else [])


async def test_refused_deletion_does_not_stop_the_rest_of_a_cleanup():
    """Rules in its name may be in namespaces without permissions, written by any user; its pods have our finalizer."""
    done: list[str] = []

    async def refused(_run: str) -> None:
        raise errors.Forbidden("PUT", "no", status=403)

    async def release(pod: Pod) -> None:
        done.append(pod.metadata.name)
        if pod.metadata.name == "a":
            raise errors.Invalid("PATCH", "neither", status=422)

    async def forks(_run: str) -> None:
        done.append("forks")

    async def nothing(_run: str) -> None: ...

    cluster = SimpleNamespace(
        **dict.fromkeys(("forks", "services"), Cache()),
        pods=Cache([pod("a", {}), pod("b", {})]),
        gateway=SimpleNamespace(routes={}),
        ledger=SimpleNamespace(get=lambda _run: None, read_current=nothing),
    )
    parts = (SimpleNamespace(clear=forks), SimpleNamespace(clear=refused))
    sweeper = OrphanSweeper(cluster, SimpleNamespace(release=release), SimpleNamespace(), *parts)
    with pytest.raises(errors.Forbidden):
        await sweeper.remove_orphans(RUN)
    assert done == ["forks", "a", "b"]


@pytest.mark.parametrize(
    "fault", [UndecidableError("no"), errors.NotFound("GET", "no", status=404), ValueError("a defect")]
)
async def test_failing_sweep_does_not_stop_the_others(fault, caplog):
    """An error in a sweep would end the process of every operator, since each begins with a sweep."""
    done: list[str] = []

    async def fails() -> None:
        raise fault

    async def goes_well() -> None:
        done.append("the other")

    cluster = SimpleNamespace(
        gateway=SimpleNamespace(discover=fails, routes={}),
        istio=SimpleNamespace(discover=goes_well),
        vs_index=SimpleNamespace(runs=set),
        documents=[],
        **dict.fromkeys(("pods", "forks", "services"), Cache()),
    )
    sweeper = OrphanSweeper(cluster, *[SimpleNamespace(sweep=lambda: done.append("targets"))] * 4)
    await sweeper.sweep()
    assert done == ["the other", "targets"]
    assert [record.levelname for record in caplog.records] == ["ERROR" if isinstance(fault, ValueError) else "WARNING"]


async def test_unreachable_server_ends_the_sweep():
    async def fails() -> None:
        raise errors.ServerError("GET", "away")

    sweeper = OrphanSweeper(SimpleNamespace(gateway=SimpleNamespace(discover=fails)), *[SimpleNamespace()] * 4)
    with pytest.raises(errors.ServerError):
        await sweeper.sweep()
