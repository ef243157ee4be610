"""Plays many stories concurrently on one server, each with one fault by the proxy.

The number of changes of a story is not constant: the operator may crash because of other stories, and then some statuses
are written once or not at all. A story that ends before its fault is repeated.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import ssl
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.operator.proxied.node import Node, Stage
from tests.operator.proxied.plans import LIVES, Names, Plan
from tests.operator.proxied.proxy import Call, FaultProxy, Harm, Through
from tests.operator.proxied.recorder import Object, Recorder
from tests.operator.proxied.trial import SHOP, Actor, Trial

from dayfly.kube import auth, errors
from dayfly.kube.client import KubeClient, Limits
from dayfly.kube.objects import NAMESPACES, untyped_resource
from dayfly.kube.transport import HttpTransport
from dayfly.operator.cluster.objects import PLUGINS, RUNS
from dayfly.operator.main import Operator
from dayfly.operator.pods.namespaces import RunnerConfigMap
from dayfly.operator.sandboxes.extension import SandboxesExtension

AT_ONCE = 16
LIVES_MOST = 3  # for one plan
PATIENCE_S = 300.0  # for one story on a busy machine
AGAIN_S = 0.5  # delay of a restart after a crash, in which a peer takes over
QUIET_S = 5.0
_RUNS, _PLUGINS = (each.read_as(dict[str, Any]) for each in (RUNS, PLUGINS))


@dataclasses.dataclass(frozen=True)
class Server:
    """Access to the API server (account and file). The operators' token is for their account."""

    url: str
    authority: Path
    admin: Path
    scheduler: Path
    kubelet: Path
    token: str


class _Process:
    """One operator without a process: when it ends, its memory is dropped."""

    def __init__(self, name: str, url: str, token: str) -> None:
        self.name = name
        self.client = KubeClient(HttpTransport(Through(url, token)))
        operator = Operator(
            self.client, runner=RunnerConfigMap("dayfly-runner-1", b"a runner"), front=SandboxesExtension, identity=name
        )
        self.task = asyncio.create_task(operator.run(), name=name)

    async def end(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        await self.client.close()


class Trials:
    """Plays plans; afterwards `trials` contains the stories of each by name. Only the last of them had its fault."""

    def __init__(self, server: Server) -> None:
        self.trials: dict[str, list[Trial]] = {}
        self.unowned: list[str] = []
        self.defects: list[str] = []
        self.late: list[str] = []
        self.left: list[str] = []
        self._server, self._names = server, Names()
        self._processes: dict[str, _Process] = {}
        self._born = 0
        self._writes: list[str] = []
        self._deaths: asyncio.Queue[str] = asyncio.Queue()

    async def play(self, plans: Sequence[Plan]) -> None:
        """Play all plans, first with one operator, then with two. At the end there is nothing to do."""
        async with self._world():
            for peers in (False, True):
                wave = [plan for plan in plans if (plan.harm is not None and plan.harm.peer) is peers]
                await self._operate(1 + peers)
                await self._wave(wave)
            await asyncio.sleep(3 * QUIET_S)
            await self._settled()
            before = len(self._writes)
            await asyncio.sleep(QUIET_S)
            self.late = self._writes[before:]
            self.left = await self._recorder.left()

    async def _settled(self) -> None:
        """Wait until nothing was written for a while; endless retries do not count."""
        for _ in range(12):
            before = len(self._writes)
            await asyncio.sleep(QUIET_S)
            if len(self._writes) == before:
                return

    @contextlib.asynccontextmanager
    async def _world(self) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as stack:
            self._admin = await stack.enter_async_context(_client(self._server.admin))
            scheduler = await stack.enter_async_context(_client(self._server.scheduler))
            kubelet = await stack.enter_async_context(_client(self._server.kubelet))
            stack.enter_context(self._listening())
            tls = ssl.create_default_context(cafile=str(self._server.authority))
            self._proxy = FaultProxy(self._server.url, tls, hook=self._hook, died=self._deaths.put_nowait)
            await stack.enter_async_context(self._proxy.serving())
            self._recorder = Recorder(self._admin, self._names.said)
            node = Node(scheduler, kubelet, stage=self._stage, ledger=self._ledger)
            await self._prepare()
            async with asyncio.TaskGroup() as tasks:
                lasting = [tasks.create_task(each) for each in (self._recorder.run(), node.run(), self._bury())]
                try:
                    await self._recorder.ready()
                    yield
                finally:
                    await self._operate(0)
                    for task in lasting:
                        task.cancel()

    async def _prepare(self) -> None:
        """Create a namespace for sandboxes in which outputs may be bound, and a plugin for each story."""
        await self._admin.create(NAMESPACES, {"metadata": {"name": SHOP}})
        bindings = untyped_resource("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings")
        account = {"kind": "ServiceAccount", "name": "dayfly-operator", "namespace": "dayfly-system"}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "dayfly-forks"}
        binding = {"metadata": {"name": "dayfly-forks"}, "roleRef": role, "subjects": [account]}
        await self._admin.create(bindings, binding, SHOP)
        roles, name = untyped_resource("rbac.authorization.k8s.io/v1", "Role", "roles"), "dayfly-objects"
        rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "create", "patch", "delete"]}]
        await self._admin.create(roles, {"metadata": {"name": name}, "rules": rules}, SHOP)
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
        subjects = [{"kind": "ServiceAccount", "name": name, "namespace": SHOP}]
        await self._admin.create(bindings, {"metadata": {"name": name}, "roleRef": role, "subjects": subjects}, SHOP)
        for name, life in LIVES.items():
            metadata, spec = {"name": f"{name}.1.0.0"}, {"name": f"{name}@1.0.0", **life.plugin}
            body = {"apiVersion": PLUGINS.api_version, "kind": PLUGINS.kind, "metadata": metadata, "spec": spec}
            await self._admin.create(_PLUGINS, body)

    def wrong(self, plan: Plan) -> list[str]:
        """Return the violations of any story of the plan, with that story; None if the last one is correct."""
        lives = self.trials[str(plan)]
        for trial in lives:
            if broken := trial.broken():
                return [*broken, trial.story()]
        if lives[-1].missed:
            had = " and ".join(str(len(each.changes)) for each in lives)
            return [f"its lives had but {had} changes, so nothing was harmed", lives[-1].story()]
        return []

    # --- operators --------------------------------------------------------------------------------------------------

    async def _operate(self, count: int) -> None:
        """Start or stop operators until there are that many."""
        while len(self._processes) > count:
            name, process = self._processes.popitem()
            self._proxy.cut_off(name)
            await process.end()
        while len(self._processes) < count:
            self._born += 1
            name = f"operator-{self._born}"
            self._processes[name] = _Process(name, self._proxy.url(name), self._server.token)

    async def _bury(self) -> None:
        """Replace an operator that has died. An operator that ends by itself has a bug."""
        while True:
            name = await self._deaths.get()
            if (process := self._processes.pop(name, None)) is None:
                continue
            count = len(self._processes) + 1
            await process.end()
            await asyncio.sleep(AGAIN_S)
            await self._operate(count)

    def _hook(self, call: Call) -> Harm | None:
        self._writes.append(str(call))
        lives = self.trials.get(self._names.of(call))
        if not lives:
            self.unowned.append(str(call))
            return None
        return lives[-1].harm(call)

    @contextlib.contextmanager
    def _listening(self) -> Iterator[None]:
        """Fail on bugs of the operator, which would otherwise log them and continue."""
        handler = logging.Handler(logging.ERROR)
        handler.emit = lambda record: self.defects.append(logging.Formatter().format(record))  # type: ignore[method-assign] # one line instead of a class
        logging.getLogger("dayfly").addHandler(handler)
        try:
            yield
        finally:
            logging.getLogger("dayfly").removeHandler(handler)

    # --- lives ------------------------------------------------------------------------------------------------------

    def _stage(self, run: str) -> Stage:
        return self.trials[self._names.said(run)][-1].stage

    async def _ledger(self, run: str) -> list[Object]:
        with contextlib.suppress(errors.NotFound):
            return [await self._admin.get(_RUNS, run)]
        return []

    async def _wave(self, plans: Sequence[Plan]) -> None:
        room = asyncio.Semaphore(AT_ONCE)
        async with asyncio.TaskGroup() as tasks:
            for plan in plans:
                tasks.create_task(self._play(plan, room))

    async def _play(self, plan: Plan, room: asyncio.Semaphore) -> None:
        """Play until the change had its fault, or there is a violation; in at most that many stories."""
        lives = self.trials.setdefault(str(plan), [])
        async with room:
            while len(lives) < LIVES_MOST:
                lives.append(Trial(plan, self._recorder.begin(str(plan))))
                await self._live(lives[-1])
                if not lives[-1].missed or lives[-1].broken():
                    return

    async def _live(self, trial: Trial) -> None:
        began = time.monotonic()
        try:
            async with asyncio.timeout(PATIENCE_S):
                await Actor(self._admin, trial).play()
        except TimeoutError:
            trial.cloud.broken(f"waited {PATIENCE_S:.0f} s in vain for {trial.waiting}")
        trial.took = time.monotonic() - began


@contextlib.asynccontextmanager
async def _client(kubeconfig: Path) -> AsyncIterator[KubeClient]:
    client = KubeClient(HttpTransport(await auth.load(kubeconfig)), Limits(rate=5000, burst=5000))
    try:
        yield client
    finally:
        await client.close()
