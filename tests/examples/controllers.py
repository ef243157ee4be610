"""The example controllers on a fake API server, with a kubelet and with processes that crash and restart."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from tests.examples.kinds import FOLDER
from tests.kube.fake import Call, Crash, FakeCluster, Fault
from tests.kube.fake.kinds import Kind

from dayfly.kube import KubeClient, Manager
from dayfly.kube.transport import KubeRequest

MERGE = "application/merge-patch+json"
Build = Callable[[Manager], object]


def module(folder: str, name: str) -> ModuleType:
    """A file of an example, as `python -m` finds it in its folder; the same each time."""
    known = f"example_{folder.replace('-', '_')}_{name}"
    if known not in sys.modules:
        path = FOLDER / "controllers" / folder / f"{name}.py"
        spec = importlib.util.spec_from_file_location(known, path)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[known] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[known])
    return sys.modules[known]


class Kubelet:
    """Starts pods a second after their creation unless their image is missing, and ends deleted pods."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.missing: set[str] = set()

    async def run(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            for pod in self._world.server.objects("pods"):
                self._look(pod)

    def _look(self, pod: dict[str, Any]) -> None:
        meta, image = pod["metadata"], pod["spec"]["containers"][0]["image"]
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
        if "nodeName" not in pod["spec"]:
            self._world.ask("POST", f"{path}/binding", {"target": {"name": "node"}})
        elif meta.get("deletionTimestamp"):
            self._world.ask("DELETE", path, {"gracePeriodSeconds": 0})
        elif image in self.missing:
            why = {"reason": "ErrImagePull", "message": f'pull access denied for "{image}"'}
            said = {"containerStatuses": [{"name": "main", "ready": False, "state": {"waiting": why}}]}
            if "containerStatuses" not in pod["status"]:
                self._world.ask("PATCH", f"{path}/status", {"status": said}, MERGE)
        elif pod["status"].get("phase") == "Pending":
            conditions = [{"type": "Ready", "status": "True"}]
            running = {"phase": "Running", "podIP": "10.0.0.1", "conditions": conditions, "containerStatuses": None}
            self._world.ask("PATCH", f"{path}/status", {"status": running}, MERGE)


class World:
    """One cluster, and processes that each `build` their controllers."""

    def __init__(self, build: Build, *kinds: Kind, seed: int = 1) -> None:
        self.server = FakeCluster(seed=seed, extra=kinds)
        self.kubelet = Kubelet(self)
        self.hook: Callable[[int, Call], Fault | None] = lambda _number, _call: None
        self.server.faults = self._fault
        self.writes: list[str] = []
        self.clients: list[Any] = []
        self._build = build
        self._names = 0
        self._tasks: list[asyncio.Task[None]] = []

    def _fault(self, call: Call) -> Fault | None:
        """Faults meet controllers' own changes; Events are a courtesy, and no part of any protocol."""
        if call.write is None or "/events" in call.request.path:
            return None
        self.writes.append(f"{call.request.method} {call.request.path}")
        return self.hook(len(self.writes), call)

    def ask(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Any:
        """Send a request as another user."""
        answer = self.server.answer(KubeRequest(method, path, {}, json.dumps(body or {}).encode(), kind))
        assert answer.status < 300, f"{method} {path}: {answer.body.decode()}"
        return json.loads(answer.body)

    def start(self, count: int = 1) -> None:
        """Start more processes; a process that crashes is replaced."""
        for _ in range(count):
            self._tasks.append(asyncio.create_task(self._live()))

    async def _live(self) -> None:
        while True:
            self._names += 1
            name = f"process-{self._names}"
            transport = self.server.transport(name)
            self.clients.append(transport)
            manager = Manager(KubeClient(transport, seed=self._names), "example.org/test", name, seed=self._names)
            self._build(manager)
            try:
                await manager.run()
            except BaseExceptionGroup as group:
                _, rest = group.split(Crash)
                if rest is not None:
                    raise
            await asyncio.sleep(0.5)

    async def until(self, so: Callable[[], Any], what: str, within: float = 600.0) -> None:
        """Wait for it, in virtual time."""
        end = asyncio.get_running_loop().time() + within
        while not so():
            for task in self._tasks:
                if task.done():
                    task.result()
            assert asyncio.get_running_loop().time() < end, f"waited for {what}\n" + self.story()
            await asyncio.sleep(0.1)

    async def rest(self, seconds: float) -> None:
        """Let time pass."""
        await asyncio.sleep(seconds)

    def story(self) -> str:
        return "\n".join(self.writes[-40:])

    async def play(self, story: Callable[[World], Any]) -> World:
        """The story with a kubelet, and an end of all processes."""
        kubelet = asyncio.create_task(self.kubelet.run())
        try:
            await story(self)
        finally:
            for task in (kubelet, *self._tasks):
                task.cancel()
            await asyncio.gather(kubelet, *self._tasks, return_exceptions=True)
        return self

    def made(self, plural: str) -> list[str]:
        """The UIDs of all objects of a kind that ever were."""
        versions = self.server.store.after(self.server.kind(plural), 0)
        return list(dict.fromkeys(write.new["metadata"]["uid"] for write in versions if write.new))

    def events(self) -> list[tuple[str, str, str]]:
        """Return kind, reason and note of all Events."""
        every = sorted(self.server.objects("events"), key=lambda each: int(each["metadata"]["resourceVersion"]))
        return [(each["regarding"]["kind"], each["reason"], each["note"]) for each in every]
