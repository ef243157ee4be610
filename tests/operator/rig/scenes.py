"""The stories of the fault matrix: sandboxes, the behaviour of their scripts, and the user's actions."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable

from tests.operator.rig.cloud import Object
from tests.operator.rig.kubelet import Script
from tests.operator.rig.world import Unit, World, live

from dayfly.spec.identity import routing_key

READY = "AllDesiredWorkloadsReady"


def step(
    name: str,
    *,
    reads: tuple[str, ...] = (),
    outputs: tuple[str, ...] = (),
    idempotent: bool = False,
    backoff: str = "5s",
) -> Object:
    """Return one step of a plugin; it reads `step.output` into the variable `STEP_OUTPUT`."""
    made: Object = {"name": name, "script": "#!/bin/sh\n"}
    if outputs:
        made["outputs"] = [{"name": each, "valueFromPath": f"/tmp/{each}"} for each in outputs]
    if reads:
        made["inputs"] = [
            {
                "name": each.replace(".", "-"),
                "valueFromStep": {"name": each.split(".")[0], "output": each.split(".")[1]},
                "as": {"env": each.replace(".", "_").upper()},
            }
            for each in reads
        ]
    if idempotent:
        made["retry"] = {"idempotent": True, "backoff": backoff}
    return made


def plugin(create: list[Object], delete: list[Object]) -> Object:
    return {"runner": {"image": "busybox:1"}, "create": create, "delete": delete}


CHAIN = plugin(
    [step("make", outputs=("url",)), step("seed", reads=("make.url",), outputs=("user",))],
    [step("drop", reads=("make.url", "seed.user"))],
)
URL, USER = {"MAKE_URL": ("db/make", "url")}, {"SEED_USER": ("db/seed", "user")}
CHAIN_UNITS = {
    "db/make": Unit(creates=True, once=True, undone_by="db/drop"),
    "db/seed": Unit(creates=True, once=True, undone_by="db/drop", reads=URL),
    "db/drop": Unit(creates=False, reads=URL | USER),
}
RETRY = plugin([step("make", outputs=("url",), idempotent=True)], [step("drop", reads=("make.url",))])
RETRY_UNITS = {"db/make": Unit(creates=True, undone_by="db/drop"), "db/drop": Unit(creates=False, reads=URL)}
OUTPUTS = {"db/make": {"url": b"db://1"}, "db/seed": {"user": b"ann\xff"}}


@dataclasses.dataclass(frozen=True)
class Scene:
    """One life. `story` begins with running operators and ends with an empty cluster."""

    plugin: Object
    units: dict[str, Unit]
    story: Callable[[World], Awaitable[None]]
    scripts: dict[str, Script] = dataclasses.field(default_factory=dict)
    clean: bool = True  # whether everything must be cleaned up
    baseline: bool = False  # whether there is a baseline
    routed: bool = False  # whether there is a Gateway with a route to the baseline

    def world(self, seed: int = 0) -> World:
        """Return a world with this scene's plugin."""
        behaves = {name: self.scripts.get(name, Script()) for name in self.units}
        scripts = {
            name: dataclasses.replace(how, outputs=how.outputs or OUTPUTS.get(name, {}))
            for name, how in behaves.items()
        }
        world = World(self.units, scripts, seed=seed)
        world.plugin("pg", self.plugin)
        if self.baseline:
            world.forks.baseline()
        if self.routed:
            world.gateways.install()
            world.gateways.route()
        return world


def wish(**more: Object) -> Object:
    return {"resources": [{"name": "db", "plugin": "pg"}], **more}


def fork(name: str = "web", **customizations: Object) -> Object:
    """Return a fork of a Deployment; by default it reads an output."""
    env = [
        {"name": "URL", "valueFrom": {"resource": {"name": "db", "outputKey": "make.url"}}},
        {"name": "MODE", "value": "forked"},
    ]
    of = {"kind": "Deployment", "namespace": "shop", "name": name}
    return {"forkOf": of, "customizations": {"env": env, **customizations}}


async def gone(world: World) -> None:
    """Wait until everything is gone, and check that nothing is written any longer."""
    await world.until(lambda: not world.leftovers(), "everything to go")
    await world.quiet()


def message(world: World) -> str:
    """Return the message in the status of the sandbox."""
    return str(world.status().get("message", ""))


def ready(world: World, name: str = "box") -> bool:
    return world.status(name).get("reason") == READY


def runs(world: World, unit: str) -> bool:
    return bool(world.cloud.starts(unit))


async def chain(world: World) -> None:
    """Two steps with an output, then deletion."""
    world.sandbox(wish())
    await world.until(lambda: ready(world), "ready")
    world.delete()
    await gone(world)


async def failing(world: World) -> None:
    """The second step fails permanently."""
    world.sandbox(wish())
    await world.until(lambda: world.status().get("reason") == "ResourceFailed", "the report of the failure")
    world.delete()
    await gone(world)


async def midway(world: World) -> None:
    """Deletion while the first step runs."""
    world.sandbox(wish())
    await world.until(lambda: runs(world, "db/make"), "the first step")
    world.delete()
    await gone(world)


async def at_once(world: World) -> None:
    """Deletion immediately after creation."""
    world.sandbox(wish())
    await world.until(lambda: world.cluster.objects("runs"), "a run")
    world.delete()
    await gone(world)


async def again(world: World) -> None:
    """Deletion, and immediate creation under the same name."""
    first = world.sandbox(wish())
    await world.until(lambda: ready(world), "ready")
    world.delete()
    await world.until(lambda: world.box() is None, "the first to go")
    second = world.sandbox(wish())
    assert first != second
    await world.until(lambda: ready(world), "ready again")
    world.delete()
    await gone(world)
    assert world.cloud.starts("db/make", first) == world.cloud.starts("db/make", second) == 1


async def abandoned(world: World) -> None:
    """Cleanup fails until the user abandons it."""
    world.sandbox(wish())
    await world.until(lambda: ready(world), "ready")
    world.delete()
    await world.until(lambda: world.cloud.starts("db/drop") >= 2, "a second try of the cleanup")
    world.change({"metadata": {"annotations": {"dayfly.dev/abandon": "the database is gone anyway"}}})
    await gone(world)


async def expired(world: World) -> None:
    """The TTL deletes the sandbox."""
    world.sandbox(wish(ttl={"duration": "2m"}))
    await world.until(lambda: ready(world) or world.box() is None, "ready, or its time to be over")
    await gone(world)
    assert world.cluster.time() > 120
    assert world.cloud.starts("db/make") <= 1


async def forked(world: World) -> None:
    """A resource and a fork that reads its output, then deletion."""
    world.sandbox(wish(forks=[fork()]))
    await world.until(lambda: ready(world), "ready")
    assert world.forks.env()["URL"] == "db://1"
    world.delete()
    await gone(world)


async def revised(world: World) -> None:
    """The fork's spec and its baseline change, then the fork is removed from the spec."""
    world.sandbox(wish(forks=[fork()]))
    await world.until(lambda: ready(world), "ready")
    world.change({"spec": {"forks": [fork(images=[{"image": "web:2"}])]}})
    world.forks.edit({"spec": {"template": {"spec": {"containers": [{"name": "main", "args": ["new"]}]}}}})

    def follows() -> bool:
        for found in world.forks.all():
            [container] = found["spec"]["template"]["spec"]["containers"]
            return (container["image"], container.get("args")) == ("web:2", ["new"]) and ready(world)
        return False

    await world.until(follows, "the fork to follow")
    world.change({"spec": {"forks": []}})
    await world.until(lambda: not (world.forks.all() or world.forks.all("services")), "the fork to go")
    world.delete()
    await gone(world)


async def fork_routed(world: World) -> None:
    """Requests with the key reach the fork until it is deleted, and the baseline before the fork ends."""
    key = routing_key(world.sandbox(wish(forks=[fork()])))
    await world.until(lambda: ready(world), "ready")
    await world.until(lambda: world.gateways.leads(key).startswith("f-"), "its key to lead to the fork")
    assert world.gateways.leads() == "web"
    world.delete()
    await gone(world)
    assert world.gateways.leads(key) == "web"


async def fork_midway(world: World) -> None:
    """Deletion while the fork's pods are starting slowly."""
    world.forks.slow(20)
    world.sandbox(wish(forks=[fork()]))
    await world.until(lambda: world.forks.all("pods"), "a pod of the fork")
    world.delete()
    await gone(world)


async def fork_deleted(world: World) -> None:
    """The fork's Deployment is deleted, and its pods are still ending when the sandbox is deleted."""
    world.sandbox(wish(forks=[fork()]))
    await world.until(lambda: ready(world), "ready")
    for found in world.forks.all():
        world.forks.delete(found["metadata"]["name"])
    assert all("deletionTimestamp" in pod["metadata"] for pod in world.forks.all("pods"))
    world.delete()
    await gone(world)


async def fork_followed(world: World) -> None:
    """The spec, then the baseline, then its Service changes; the baseline is gone when the sandbox is deleted."""
    world.sandbox(wish(forks=[fork()]))
    await world.until(lambda: ready(world), "ready")
    [first] = world.forks.all()
    world.change({"spec": {"forks": [fork(images=[{"image": "web:2"}])]}})
    await world.until(lambda: world.forks.main().get("image") == "web:2" and ready(world), "the wish to be followed")
    world.forks.edit({"spec": {"template": {"spec": {"containers": [{"name": "main", "args": ["new"]}]}}}})
    await world.until(lambda: world.forks.main().get("args") == ["new"] and ready(world), "the baseline to be followed")
    world.forks.reports([90])
    await world.until(lambda: world.forks.ports() == [90], "its Service to be followed")
    [last] = world.forks.all()
    assert last["metadata"]["uid"] == first["metadata"]["uid"], "a form is changed where it is"
    assert (world.forks.main()["image"], world.forks.env()["URL"]) == ("web:2", "db://1")
    world.forks.forsake()
    await world.rest(1)
    await world.until(lambda: ready(world), "ready without its baseline")
    world.delete()
    await gone(world)


async def fork_scaling(world: World) -> None:
    """Deletion as soon as the ledger contains the fork, before or while its pods are created."""
    world.sandbox(wish(forks=[fork()]))

    def claimed() -> bool:
        records = [record for run in world.cluster.objects("runs") for record in run["ledger"].get("units", {}).items()]
        return any(name.startswith("fork:") and record["state"] == "claimed" for name, record in records)

    await world.until(claimed, "the fork to be claimed")
    world.delete()
    await gone(world)


async def fork_abroad(world: World) -> None:
    """Two forks, one in another namespace, which needs the outputs too and reads the other fork's address."""
    world.namespace("bank", {"dayfly.dev/sandboxes-from": "shop"})
    world.forks.baseline("vault", "bank")
    source = {"fork": {"forkOf": fork()["forkOf"], "expression": "{{ .Service.Host }}:{{ .Service.Port }}"}}
    reads = fork()["customizations"]["env"]
    foreign = fork("vault", env=[*reads, {"name": "WEB", "valueFrom": source}])
    foreign["forkOf"]["namespace"] = "bank"
    world.sandbox(wish(forks=[foreign, fork()]))
    await world.until(lambda: ready(world), "ready")
    told = dict(world.forks.environments)
    assert told["fork:bank/vault"]["URL"] == told["fork:shop/web"]["URL"] == "db://1"
    assert told["fork:bank/vault"]["WEB"].endswith(".shop.svc:80")
    assert {item["metadata"]["namespace"] for item in world.cluster.objects("secrets")} >= {"bank", "shop"}
    world.delete()
    await gone(world)


async def recalled(world: World) -> None:
    """Deletion while the first step's image is missing: it provably never began, so nothing is cleaned up."""
    world.sandbox(wish())
    await world.until(lambda: "no such image" in world.status().get("message", ""), "the report of the missing image")
    world.delete()
    await gone(world)
    assert not world.cloud.log, "no step ever runs, so no cleanup either"


async def claimed(world: World) -> None:
    """A step, an object that reads its output, a step that reads the object's output; then cleanup in reverse order."""
    world.may("claims.db.example.org")
    world.may("secrets", verbs="get")
    await chain(world)
    assert not world.cluster.objects("claims")


async def claimed_midway(world: World) -> None:
    """Deletion before the object's controller has finished."""
    world.may("claims.db.example.org")
    world.claims.latency = 30.0
    world.sandbox(wish())
    await world.until(lambda: world.cluster.objects("claims"), "the object")
    world.delete()
    await gone(world)
    assert not world.cluster.objects("claims")


async def job(world: World) -> None:
    """An object that is created suspended; its controller is missing, so it is deleted before it is ready."""
    world.may("jobs.batch")
    world.sandbox(wish())
    await world.until(
        lambda: any(not item["spec"].get("suspend") for item in world.cluster.objects("jobs")), "its release"
    )
    world.delete()
    await gone(world)
    assert not world.cluster.objects("jobs")


CLAIM: Object = {
    "name": "claim",
    "inputs": [{"name": "url", "valueFromStep": {"name": "make", "output": "url"}}],
    "object": {
        "manifest": {"apiVersion": "db.example.org/v1", "kind": "Claim", "spec": {"url": "", "size": 1}},
        "set": {"/spec/url": {"input": "url"}},
        "ready": {"condition": "Ready"},
    },
    "outputs": [
        {"name": "host", "valueFromJSONPath": "$.status.host"},
        {"name": "password", "valueFromSecret": {"nameFromJSONPath": "$.status.secret", "key": "password"}},
    ],
}
CLAIMED = plugin(
    [step("make", outputs=("url",)), CLAIM, step("seed", reads=("claim.host", "claim.password"))],
    [step("drop", reads=("claim.host",))],
)
CLAIMED_UNITS = {
    "db/make": Unit(creates=True, once=True, undone_by="db/drop"),
    "db/seed": Unit(creates=True, once=True, undone_by="db/drop"),
    "db/drop": Unit(creates=False),
}
_JOB: Object = {"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": {"spec": {"restartPolicy": "Never"}}}}
JOB = plugin([{"name": "job", "object": {"manifest": _JOB, "ready": {"condition": "Complete"}}}], [])

SCENES = {
    "chain": Scene(CHAIN, CHAIN_UNITS, chain),
    "failing": Scene(CHAIN, CHAIN_UNITS, failing, {"db/seed": Script(fails=9)}),
    "retry": Scene(RETRY, RETRY_UNITS, chain, {"db/make": Script(fails=1)}),
    "midway": Scene(CHAIN, CHAIN_UNITS, midway, {"db/make": Script(runs=5)}),
    "at-once": Scene(CHAIN, CHAIN_UNITS, at_once),
    "cleanup-retries": Scene(RETRY, RETRY_UNITS, chain, {"db/drop": Script(fails=2)}),
    "again": Scene(RETRY, RETRY_UNITS, again),
    "abandoned": Scene(RETRY, RETRY_UNITS, abandoned, {"db/drop": Script(fails=99)}, clean=False),
    "expired": Scene(RETRY, RETRY_UNITS, expired),
    "recalled": Scene(CHAIN, CHAIN_UNITS, recalled, {"db/make": Script(image_missing="no such image")}),
    "object": Scene(CLAIMED, CLAIMED_UNITS, claimed),
    "object-midway": Scene(CLAIMED, CLAIMED_UNITS, claimed_midway),
    "object-at-rest": Scene(JOB, {}, job),
    "fork-revised": Scene(RETRY, RETRY_UNITS, revised, baseline=True),
    "fork-routed": Scene(RETRY, RETRY_UNITS, fork_routed, baseline=True, routed=True),
    "fork-midway": Scene(RETRY, RETRY_UNITS, fork_midway, baseline=True),
    "fork-deleted": Scene(RETRY, RETRY_UNITS, fork_deleted, baseline=True),
    "fork-followed": Scene(RETRY, RETRY_UNITS, fork_followed, baseline=True),
    "fork-scaling": Scene(RETRY, RETRY_UNITS, fork_scaling, baseline=True),
    "fork-abroad": Scene(RETRY, RETRY_UNITS, fork_abroad, baseline=True),
}


CHAIN_LIFE = Scene(CHAIN, CHAIN_UNITS, chain)


def at_work(story, scene: Scene = CHAIN_LIFE, **start) -> World:
    """Return a story with running operators in an empty world."""

    async def begin(world: World) -> None:
        world.start(**start)
        await story(world)

    return live(scene.world, begin)


def play(story, scene: Scene = CHAIN_LIFE, operators: int = 1, **scripts: Script) -> World:
    """Return a story with running operators; `make=Script(...)` sets the behaviour of that step."""

    def born() -> World:
        world = scene.world()
        for name, script in scripts.items():
            script.outputs = world.kubelet.scripts[f"db/{name}"].outputs
            world.kubelet.scripts[f"db/{name}"] = script
        return world

    async def begin(world: World) -> None:
        world.start(operators)
        world.sandbox(wish())
        await story(world)

    return live(born, begin)
