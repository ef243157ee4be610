"""A state means the same on both hosts: one story, request by request, over the store of each."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

import msgspec
import pytest
from tests.execute.states import Client, running
from tests.kube.fake import FakeCluster
from tests.kube.fake.kinds import custom

from dayfly.embedded.states import StateFiles, keys
from dayfly.execute.state import head
from dayfly.execute.state.service import StateOwner
from dayfly.kube.client import KubeClient as Kube
from dayfly.kube.objects import AnnotatedMeta, untyped_resource
from dayfly.operator.cluster.objects import RUNS, RunObject
from dayfly.operator.states.state_secrets import StateSecrets
from dayfly.spec.run import Run, State

if TYPE_CHECKING:
    from pathlib import Path

LARGE = bytes(range(256)) * 4096


class Machine:
    """States as files of this machine."""

    def __init__(self, home: Path) -> None:
        self.home, self.run = home, None
        home.mkdir()
        keys(home)
        self.store = StateFiles(home, SimpleNamespace(load=lambda _uid: self.run))

    async def stands(self, run: Run | None) -> None:
        self.run = SimpleNamespace(run=run) if run else None


class Cluster:
    """Secrets of a cluster."""

    def __init__(self, _home: Path) -> None:
        kinds = [custom("dayfly.dev", "v1alpha1", "runs", "Run", namespaced=False, status=False)]
        self.kube = Kube(FakeCluster(seed=1, extra=kinds, time=lambda: 0.0, settles=False).transport("a"), seed=1)
        self.store, self.run = StateSecrets(self.kube, "dayfly-system"), None

    async def stands(self, run: Run | None) -> None:
        if run is None:
            await self.kube.delete(RUNS, "u", uid=self.run.metadata.uid)
        elif self.run is None:
            spaces = untyped_resource("v1", "Namespace", "namespaces", namespaced=False)
            await self.kube.create(spaces, {"metadata": {"name": "dayfly-system"}})
            self.run = await self.kube.create(RUNS, RunObject(metadata=AnnotatedMeta(name="u"), ledger=run))
        else:
            self.run = await self.kube.update(RUNS, msgspec.structs.replace(self.run, ledger=run), "u")


async def told(host) -> list[object]:
    """Every answer of a life: made, locked, written, killed, taken over, destroyed, over."""
    said: list[object] = []
    await host.stands(running(apply=(1, State.CLAIMED)))
    apply, destroy = Client(host.store), Client(host.store, "destroy")
    said += [await apply.ask("GET"), await apply.write(b"{}", ""), await apply.lock("a"), await apply.lock("a")]
    said += [await apply.lock("b"), await apply.write(b"1", "a"), await apply.write(b"1", "a"), await apply.read()]
    said += [await apply.write(LARGE, "a"), await apply.read() == LARGE, await destroy.ask("GET")]
    await host.stands(running(apply=(1, State.UNKNOWN), destroy=(1, State.CLAIMED)))
    said += [await destroy.lock("c"), await destroy.write(b"2", "a"), await destroy.unlock("a")]
    await host.stands(running(apply=(1, State.DONE), destroy=(1, State.CLAIMED)))
    said += [await apply.write(b"late", "a"), await apply.lock("a"), await destroy.lock("c")]
    said += [await destroy.read() == LARGE, await destroy.write(b"", "c"), await destroy.read() == LARGE]
    for number in range(head.MAX_VERSIONS + 2):
        said.append(await destroy.write(b"%d" % number, "c"))
    said += [await destroy.ask("DELETE", lock="c"), await destroy.ask("GET"), await destroy.unlock("c")]
    said.append([str(each.holder) for each in (await host.store.find(StateOwner("u", "stack"))).head.refused])
    await host.stands(None)
    said += [await destroy.ask("GET"), await destroy.write(b"later", "c")]
    return said


@pytest.mark.parametrize("host", [Machine, Cluster])
async def test_each_request_is_answered_alike(host, tmp_path: Path):
    said = await told(host(tmp_path / "home"))
    statuses = [each[0] if isinstance(each, tuple) else each for each in said]
    written = [200] * (head.MAX_VERSIONS + 2)
    assert statuses == [
        *(404, 200, 200, 200, 423, 200, 200, b"1", 200, True, 403),
        *(423, 409, 409, 403, 423, 200, True, 400, True),
        *written,
        *(200, 404, 200, ["stack/destroy, attempt 1", "stack/apply, attempt 1"], 403, 403),
    ]


async def test_and_in_the_same_words(tmp_path: Path):
    assert await told(Machine(tmp_path / "home")) == await told(Cluster(tmp_path))
