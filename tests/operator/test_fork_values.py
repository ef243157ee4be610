"""Values of forks in the hooks of their sandbox: names, addresses and readiness, and what happens if they are missing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.operator.rig.fork_stories import play
from tests.operator.rig.scenes import RETRY, RETRY_UNITS, Scene, fork, forked, gone, ready, wish
from tests.operator.rig.world import Unit, World

from dayfly.execute.fork.read import ForkDeployment, ForkService, ServicePort, ServiceSpec, WorkloadSpec, WorkloadStatus
from dayfly.execute.inputs import ForkAddressUnknownError
from dayfly.kube.objects import AnnotatedMeta, ObjectMeta, OwnerReference
from dayfly.operator.cluster.fork_values import fork_evaluator
from dayfly.operator.cluster.objects import RunObject
from dayfly.spec.lifecycle import Baseline, ForkValue, Target
from dayfly.spec.run import Run, State, UnitRecord

OF = fork()["forkOf"]
SERVICES = "/api/v1/namespaces/shop/services"
UNITS = RETRY_UNITS | {"warm": Unit(creates=True, once=True), "drain": Unit(creates=False, drains=True)}
SCENE = Scene(RETRY, UNITS, forked)


def told(name: str, expression: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"fork": {"forkOf": OF, "expression": expression}}}


READS = [
    told("where", "http://{{ .Service.Host }}:{{.Service.Port}}/"),
    told("who", "{{.Name}}"),
    told("answers", "{{.Ready}}"),
]
WARM = {"name": "warm", "script": "#!/bin/sh\n", "inputs": READS}
DRAIN = {"name": "drain", "script": "#!/bin/sh\n", "inputs": READS}
PUBLISH = {
    "name": "publish",
    "inputs": READS,
    "object": {
        "manifest": {"apiVersion": "db.example.org/v1", "kind": "Claim", "spec": {"url": "", "by": ""}},
        "set": {"/spec/url": {"input": "where"}, "/spec/by": {"input": "who"}},
        "ready": {"condition": "Ready"},
    },
}


def hooked(post_start: dict[str, Any] = WARM) -> dict[str, Any]:
    hooks = {"postStart": [post_start], "preStop": [DRAIN]}
    return wish(forks=[fork()], hooks=hooks, runner={"image": "busybox:1"})


def given(world: World, unit: str) -> dict[str, bytes]:
    """Return the environment of the only attempt of a step."""
    [found] = [values for (_, name, _), values in world.cloud.given.items() if name == unit]
    return found


def unit(world: World, name: str) -> dict[str, Any]:
    return next((each for each in world.status().get("units", ()) if each["id"] == name), {})


def workload(uid: str = "w", replicas: int = 1, available: int = 1, **more: Any) -> ForkDeployment:
    status = WorkloadStatus(replicas=available, updated_replicas=available, available_replicas=available)
    meta = AnnotatedMeta(name="own", namespace="shop", uid=uid, **more)
    return ForkDeployment(metadata=meta, spec=WorkloadSpec(replicas=replicas), status=status)


def service(owner: str = "r") -> ForkService:
    owners = [OwnerReference(api_version="v1", kind="Run", name="box", uid=owner)]
    meta = ObjectMeta(name="own", namespace="shop", owner_references=owners)
    return ForkService(metadata=meta, spec=ServiceSpec(ports=[ServicePort(port=80)]))


def asks(expression: str, seen: ForkDeployment | None, leads: ForkService | None, state: State = State.CLAIMED) -> str:
    """Return the values of a run's fork, according to the caches."""
    target = Target(kind="Sandbox", namespace="shop", name="box", uid="u")
    record = UnitRecord(attempt=1, state=state, ref="w", kind="fork", generation="g")
    ledger = Run(uid="u", target=target, plan="", units={"fork:shop/web": record})
    run = RunObject(metadata=AnnotatedMeta(name="box", uid="r"), ledger=ledger)
    caches = SimpleNamespace(get=lambda *_: seen), SimpleNamespace(get=lambda *_: leads)
    cluster = SimpleNamespace(forks=caches[0], services=caches[1], now=lambda: 0)
    of = Baseline(kind="Deployment", namespace="shop", name="web")
    return fork_evaluator(cluster, run)(ForkValue(fork_of=of, expression=expression))


@pytest.mark.parametrize(
    ("seen", "state"),
    [(None, State.CLAIMED), (workload("another"), State.CLAIMED), (workload(), State.DONE), (workload(), State.VOID)],
)
def test_fork_that_is_not_in_the_ledger_has_no_values(seen, state):
    with pytest.raises(ForkAddressUnknownError, match="fork:shop/web does not exist yet") as caught:
        asks("{{.Ready}}", seen, service(), state)
    assert caught.value.reason == "WaitingForForks"


@pytest.mark.parametrize("leads", [None, service("another's run")])
def test_address_of_a_foreign_service_is_not_a_value(leads):
    for expression in ("{{.Service.Host}}", "{{.Service.Port}}"):
        with pytest.raises(ForkAddressUnknownError, match="no Service with a port leads") as caught:
            asks(expression, workload(), leads)
        assert caught.value.reason == "ForkWithoutService"
    assert asks("{{.Ready}} and text", workload(), leads) == "true and text"
    assert asks("{{.Service.Host}}", workload(), service()) == "own.shop.svc"


@pytest.mark.parametrize(("available", "said"), [(2, "true"), (1, "false"), (0, "false")])
def test_fork_is_available_once_all_its_pods_are(available, said):
    assert asks("{{.Ready}}", workload(replicas=2, available=available), None) == said


def test_fork_that_is_being_deleted_is_not_available():
    assert asks("{{.Ready}}", workload(deletion_timestamp="2026-01-01T00:00:00Z"), None) == "false"


def test_hook_steps_get_address_and_availability_of_a_fork():
    async def story(world: World) -> None:
        world.sandbox(hooked())
        await world.until(lambda: ready(world), "ready", 120)
        [made] = world.forks.all()
        own = made["metadata"]["name"]
        warm = given(world, "warm")
        assert warm["WHERE"].decode() == f"http://{own}.shop.svc:80/"
        assert (warm["WHO"].decode(), warm["ANSWERS"]) == (own, b"true")
        world.delete()
        await gone(world)
        drain = given(world, "drain")
        assert {name: drain[name] for name in ("WHERE", "WHO", "ANSWERS")} == {
            name: warm[name] for name in ("WHERE", "WHO", "ANSWERS")
        }
        assert drain["DAYFLY_ABSENT_INPUTS"] == b""

    world = play(story, scene=SCENE)
    order = [(line.what, line.unit) for line in world.cloud.log if line.unit in ("warm", "drain", "fork:shop/web")]
    assert order.index(("start", "fork:shop/web")) < order.index(("start", "warm"))
    assert order.index(("end", "drain")) < order.index(("end", "fork:shop/web"))


def test_create_step_waits_for_the_service_of_a_fork():
    async def story(world: World) -> None:
        service = world.forks.of("web", "services")
        world.ask("DELETE", f"{SERVICES}/web")
        world.sandbox(hooked())
        await world.until(lambda: unit(world, "warm").get("reason") == "ForkWithoutService", "the lack", 120)
        said = "no Service with a port leads to the baseline shop/web, so its fork has no address"
        assert said in unit(world, "warm")["message"]
        assert unit(world, "warm")["state"] == "waiting"
        assert not world.cloud.starts("warm")
        world.ask("POST", SERVICES, {"metadata": {"name": "web"}, "spec": service["spec"]})
        await world.until(lambda: ready(world), "ready", 120)
        assert given(world, "warm")["WHERE"].endswith(b".shop.svc:80/")
        world.delete()
        await gone(world)

    play(story, scene=SCENE)


def test_stop_step_runs_without_the_service_of_a_fork():
    async def story(world: World) -> None:
        world.ask("DELETE", f"{SERVICES}/web")
        world.sandbox(hooked())
        await world.until(lambda: unit(world, "warm").get("reason") == "ForkWithoutService", "the lack", 120)
        world.kubelet.scripts["drain"].runs = 30
        world.delete()
        await world.until(lambda: "it is passed as absent" in unit(world, "drain").get("message", ""), "a word", 60)
        await gone(world)
        drain = given(world, "drain")
        assert (drain["WHERE"], drain["DAYFLY_ABSENT_INPUTS"]) == (b"", b"where")
        assert drain["WHO"]
        assert not world.cloud.starts("warm")

    play(story, scene=SCENE)


def test_hook_object_has_fork_values_and_goes_after_the_fork():
    async def story(world: World) -> None:
        world.may("claims.db.example.org")
        world.sandbox(hooked(PUBLISH))
        await world.until(lambda: ready(world), "ready", 120)
        [made], [claim] = world.forks.all(), world.cluster.objects("claims")
        own = made["metadata"]["name"]
        assert claim["spec"] == {"url": f"http://{own}.shop.svc:80/", "by": own}
        world.delete()
        await gone(world)
        assert not world.cluster.objects("claims")

    play(story, scene=SCENE)


def test_hook_object_waits_for_fork_values():
    async def story(world: World) -> None:
        world.may("claims.db.example.org")
        service = world.forks.of("web", "services")
        world.ask("DELETE", f"{SERVICES}/web")
        world.sandbox(hooked(PUBLISH))
        await world.until(lambda: unit(world, "publish").get("reason") == "ForkWithoutService", "the lack", 120)
        assert not world.cluster.objects("claims")
        assert "publish" not in world.ledger()["units"], "nothing was permitted"
        world.ask("POST", SERVICES, {"metadata": {"name": "web"}, "spec": service["spec"]})
        await world.until(lambda: ready(world), "ready", 120)
        [claim] = world.cluster.objects("claims")
        assert claim["spec"]["url"].endswith(".shop.svc:80/")
        world.delete()
        await gone(world)

    play(story, scene=SCENE)
