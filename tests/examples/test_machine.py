"""Example machine: a Machine stands on whatever fulfils the contract, and no kind of it is known to its controller."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import aiohttp
import pytest
from tests.examples.controllers import MERGE, World, module
from tests.examples.kinds import FOLDER
from tests.kube.fake import WRITE_HARMS, Fault, custom, run
from tests.selection import SELECTION

from dayfly.kube import ApiResource, KubeStruct, Manager
from dayfly.kube.objects import ObjectMeta

machine, pods, processes = (module("machine", name) for name in ("machine", "pod_machine", "process_machine"))
KINDS = [
    custom("machines.example.org", "v1", plural, kind)
    for plural, kind in (("machines", "Machine"), ("podmachines", "PodMachine"), ("processmachines", "ProcessMachine"))
]
API = "/apis/machines.example.org/v1/namespaces/default"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
UNKNOWN = f"{DEFINITIONS}/podmachines.machines.example.org"


class Processes:
    """The service without processes: it starts one at the first request, and reports it from the second on."""

    def __init__(self) -> None:
        self.running: dict[str, int] = {}
        self.begun: list[str] = []
        self.removed: set[str] = set()
        self.ended: dict[str, int] = {}
        self.says = ""

    async def keep(self, uid: str, program: str):
        await asyncio.sleep(0.1)
        if self.says:
            raise processes.ServiceError(self.says)
        if uid in self.removed:
            raise processes.ServiceError("its name is used up")
        if uid not in self.running:
            self.running[uid] = 0
            self.begun.append(uid)
        self.running[uid] += 1
        if uid in self.ended:
            return processes.Process("ended", code=self.ended[uid])
        return processes.Process("running" if self.running[uid] > 1 else "starting", address=f"process {uid}")

    async def remove(self, uid: str) -> None:
        await asyncio.sleep(0.1)
        self.removed.add(uid)
        self.running.pop(uid, None)


class Stage(World):
    """A cluster with the example's kinds and controllers."""

    def __init__(self, *extra: Any, seed: int = 1) -> None:
        self.service = Processes()
        self.others: list[Any] = []
        super().__init__(self._build_all, *KINDS, *extra, seed=seed)
        for plural in ("podmachines", "processmachines"):
            self.define(plural)

    def _build_all(self, manager: Manager) -> None:
        machine.Machines(manager)
        pods.PodMachines(manager)
        processes.ProcessMachines(manager, self.service)
        for build in self.others:
            build(manager)

    def define(self, plural: str, *, contract: str = "ready", group: str = "machines.example.org") -> None:
        labels = {machine.CONTRACT: contract} if contract else {}
        self.ask("POST", DEFINITIONS, {"metadata": {"name": f"{plural}.{group}", "labels": labels}})

    def stand(self, name: str, kind: str, version: str = "machines.example.org/v1") -> None:
        """A Machine on an object of that kind and its own name."""
        to = {"apiVersion": version, "kind": kind, "name": name}
        self.ask("POST", f"{API}/machines", {"metadata": {"name": name}, "spec": {"infrastructureRef": to}})

    def on_pod(self, name: str = "red", image: str = "os:1") -> None:
        self.ask("POST", f"{API}/podmachines", {"metadata": {"name": name}, "spec": {"image": image}})

    def on_process(self, name: str = "blue") -> None:
        self.ask("POST", f"{API}/processmachines", {"metadata": {"name": name}, "spec": {"program": "idle"}})

    def status(self, name: str) -> dict[str, Any]:
        found = [item for item in self.server.objects("machines") if item["metadata"]["name"] == name]
        return found[0].get("status", {}) if found else {}

    def message(self, name: str) -> str:
        return self.status(name).get("conditions", [{}])[0].get("message", "")

    def ready(self, *names: str) -> bool:
        return all(self.status(name).get("ready") for name in names)


def played(story, count: int = 1, *extra: Any, hook=None, seed: int = 1) -> Stage:
    async def main() -> Stage:
        stage = Stage(*extra, seed=seed)
        if hook:
            stage.hook = hook
        stage.start(count)
        await stage.play(story)
        return stage

    return run(main())


async def life(stage: Stage) -> None:
    """Two Machines on two infrastructures; one is written before what it stands on, and both go."""
    stage.stand("blue", "ProcessMachine")
    stage.on_pod()
    stage.stand("red", "PodMachine")
    await asyncio.sleep(3)
    stage.on_process()
    await stage.until(lambda: stage.ready("red", "blue"), "both to be ready")
    assert (stage.status("red")["address"], stage.message("red")) == ("10.0.0.1", "PodMachine red: its pod is running")
    assert stage.message("blue") == "ProcessMachine blue: its process is running"
    for name in ("red", "blue"):
        stage.ask("DELETE", f"{API}/machines/{name}")
    await stage.until(lambda: not stage.server.objects("machines"), "both to go")
    assert stage.server.objects("podmachines") == stage.server.objects("processmachines") == []
    assert not stage.service.running
    await stage.until(lambda: not stage.server.objects("pods"), "the pod to go")


def test_two_machines_on_two_infrastructures():
    stage = played(life)
    assert len(stage.made("pods")) == len(stage.service.begun) == 1


@pytest.mark.parametrize("harm", WRITE_HARMS, ids=lambda harm: harm.name.lower())
def test_fault_at_any_write_duplicates_and_leaves_nothing(harm):
    writes = len(played(life).writes)
    assert writes > 12
    for number in SELECTION.sample(range(1, writes + 1), 12, f"writes of machine with {harm.name}"):
        stage = played(life, hook=lambda count, _call, at=number: Fault(harm) if count == at else None)
        assert len(stage.made("pods")) == len(stage.service.begun) == 1, f"{harm} at write {number}\n{stage.story()}"


@pytest.mark.parametrize("seed", range(1, 4))
def test_two_at_once_with_views_of_the_past_make_nothing_twice(seed):
    async def story(stage: Stage) -> None:
        await stage.until(lambda: len(stage.clients) == 2, "two processes")
        for number, transport in enumerate(stage.clients):
            transport.view.delay = (0.3, 3.0, 11.0, 30.0)[(seed + number) % 4]
        await life(stage)

    stage = played(story, 2, seed=seed)
    assert len(stage.made("pods")) == len(stage.service.begun) == 1


def test_infrastructure_failure_is_shown_in_its_condition():
    """The kubelet's words and the service's, through two controllers; and the end of either is a failure."""

    async def story(stage: Stage) -> None:
        stage.kubelet.missing.add("os:1")
        stage.service.says = "the service of processes says 422: no program 'idle'"
        stage.on_pod()
        stage.stand("red", "PodMachine")
        stage.on_process()
        stage.stand("blue", "ProcessMachine")
        denied = 'PodMachine red: ErrImagePull: pull access denied for "os:1"'
        await stage.until(lambda: stage.message("red") == denied, "the kubelet's words")
        refused = "ProcessMachine blue: the service of processes says 422: no program 'idle'"
        await stage.until(lambda: stage.message("blue") == refused, "the service's words")
        stage.kubelet.missing.clear()
        stage.service.says = ""
        await stage.until(lambda: stage.ready("red", "blue"), "both to be ready")
        [uid] = stage.service.running
        stage.service.ended[uid] = 3
        await stage.until(lambda: stage.status("blue").get("failureReason") == "ProcessEnded", "its end")
        assert stage.message("blue") == "ProcessMachine blue: ProcessEnded: its process has ended with code 3"
        assert not stage.ready("blue")
        ended = {"phase": "Failed", "message": "evicted", "conditions": []}
        stage.ask("PATCH", "/api/v1/namespaces/default/pods/red/status", {"status": ended}, MERGE)
        await stage.until(lambda: stage.message("red") == "PodMachine red: PodEnded: evicted", "its end")

    played(story)


class Static(KubeStruct, frozen=True):
    """Infrastructure of the test's own."""

    metadata: ObjectMeta


STATICS = ApiResource("iron.example.com", "v1", "statics", "Static", Static)


@pytest.mark.parametrize("form", ["field", "condition"])
def test_third_infrastructure_kind_needs_no_controller_change(form):
    """The kind is defined while the controller runs. The kind's own controller has no code for Machines."""
    text = (FOLDER / "controllers" / "machine" / "machine.py").read_text()
    assert not re.search("PodMachine|ProcessMachine|Static", text)
    kind = custom("iron.example.com", "v1", "statics", "Static")

    async def story(stage: Stage) -> None:
        stage.stand("grey", "Static", "iron.example.com/v1")
        await stage.until(lambda: "serves no Static of iron.example.com/v1" in stage.message("grey"), "what it lacks")
        stage.server.serve(kind)
        stage.define("statics", contract="", group="iron.example.com")
        lack = f"it needs the label {machine.CONTRACT}=ready on its definition statics.iron.example.com"
        await stage.until(lambda: lack in stage.message("grey"), "the label that is missing")
        labelled = {"metadata": {"labels": {machine.CONTRACT: "ready"}}}
        stage.ask("PATCH", f"{DEFINITIONS}/statics.iron.example.com", labelled, MERGE)
        await stage.until(lambda: stage.message("grey") == "there is no Static grey yet", "the object that is missing")
        path = "/apis/iron.example.com/v1/namespaces/default/statics"
        stage.ask("POST", path, {"metadata": {"name": "grey"}})
        await stage.until(lambda: stage.message("grey") == "Static grey: it is not ready yet", "the object to be seen")
        said = {"ready": True} if form == "field" else {"conditions": [{"type": "Ready", "status": "True"}]}
        stage.ask("PATCH", f"{path}/grey/status", {"status": said}, MERGE)
        await stage.until(lambda: stage.ready("grey"), "the contract to be fulfilled", within=5)
        failed = {"failureReason": "Rust", "failureMessage": "it fell apart", "ready": False, "conditions": None}
        stage.ask("PATCH", f"{path}/grey/status", {"status": failed}, MERGE)
        await stage.until(lambda: stage.message("grey") == "Static grey: Rust: it fell apart", "its failure", within=5)
        stage.ask("DELETE", f"{API}/machines/grey")
        await stage.until(lambda: not stage.server.objects("machines"), "the end of both")
        assert stage.server.objects("statics") == []

    stage = played(story)
    stage.server.serve(kind)


@pytest.mark.parametrize(
    ("version", "kind", "path"),
    [
        ("v1", "Secret", "/api/v1/namespaces/default/secrets"),
        ("machines.example.org/v1", "PodMachine", f"{API}/podmachines"),
    ],
)
def test_machine_cannot_reference_other_kinds(version, kind, path):
    """Users who may write Machines may not use one to delete a Secret, or to watch Secrets."""

    async def story(stage: Stage) -> None:
        stage.ask("PATCH", UNKNOWN, {"metadata": {"labels": None}}, MERGE)
        body = {"metadata": {"name": "key"}, **({"spec": {"image": "os:1"}} if kind == "PodMachine" else {})}
        stage.ask("POST", path, body)
        stage.stand("key", kind, version)
        await stage.until(lambda: "is not known to fulfil the contract" in stage.message("key"), "the refusal")
        stage.ask("DELETE", f"{API}/machines/key")
        await stage.until(lambda: not stage.server.objects("machines"), "the Machine to go")
        [found] = stage.server.objects(path.rpartition("/")[2])
        assert "ownerReferences" not in found["metadata"]
        if kind == "Secret":
            assert not [call for call in stage.server.calls if "/secrets" in call.request.path]

    played(story)


def test_infrastructure_has_one_machine():
    async def story(stage: Stage) -> None:
        stage.on_pod()
        stage.stand("red", "PodMachine")
        await stage.until(lambda: stage.ready("red"), "the first")
        to = {"apiVersion": "machines.example.org/v1", "kind": "PodMachine", "name": "red"}
        stage.ask("POST", f"{API}/machines", {"metadata": {"name": "second"}, "spec": {"infrastructureRef": to}})
        await stage.until(lambda: stage.message("second") == "PodMachine red belongs to Machine red", "what it lacks")
        stage.ask("DELETE", f"{API}/machines/second")
        await stage.until(lambda: len(stage.server.objects("machines")) == 1, "the second to go")
        assert stage.ready("red")
        assert stage.server.objects("podmachines")

    played(story)


def test_infrastructure_of_another_owner_is_used_and_kept():
    async def story(stage: Stage) -> None:
        meta = {"metadata": {"name": "keeper"}}
        keeper = stage.ask("POST", "/api/v1/namespaces/default/configmaps", meta)["metadata"]
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "keeper", "uid": keeper["uid"]}
        meta = {"name": "red", "ownerReferences": [owner]}
        stage.ask("POST", f"{API}/podmachines", {"metadata": meta, "spec": {"image": "os:1"}})
        stage.stand("red", "PodMachine")
        await stage.until(lambda: stage.ready("red"), "the Machine")
        stage.ask("DELETE", f"{API}/machines/red")
        await stage.until(lambda: not stage.server.objects("machines"), "the Machine to go")
        [left] = stage.server.objects("podmachines")
        assert left["metadata"]["ownerReferences"] == [owner]

    played(story)


@pytest.fixture
def server() -> Iterator[str]:
    """The example's service as a separate process; yields its address."""
    script = FOLDER / "controllers" / "machine" / "service.py"
    process = subprocess.Popen([sys.executable, script, "127.0.0.1:0", "key"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.communicate()


async def test_the_service_itself_keeps_one_process_for_each_name(server):
    """The real service over HTTP, with the requests of the controller."""
    async with aiohttp.ClientSession() as session:
        service = processes.HttpService(session, server, "key")
        assert (await service.keep("u1", "idle")).state == "starting"
        first = await service.keep("u1", "idle")
        assert (first.state, first) == ("running", await service.keep("u1", "idle"))
        with pytest.raises(processes.ServiceError, match=r"422.*no program 'rm'; there is idle, brief, broken"):
            await service.keep("u2", "rm")
        async with asyncio.timeout(30):
            while True:
                ended = await service.keep("u3", "broken")
                if ended.state == "ended":
                    break
                await asyncio.sleep(0.02)
        assert ended.code == 3
        for name in ("u1", "u1", "u3"):
            await service.remove(name)
        with pytest.raises(processes.ServiceError, match=r"410.*cannot be used again"):
            await service.keep("u1", "idle")
        with pytest.raises(processes.ServiceError, match="401"):
            await processes.HttpService(session, server, "other").keep("u4", "idle")
        with pytest.raises(processes.ServiceError, match="does not answer"):
            await processes.HttpService(session, "http://127.0.0.1:1", "key").keep("u5", "idle")
