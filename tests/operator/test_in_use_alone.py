"""The label of what sandboxes live off, each rule alone: when it is set, when taken off, and what a no means."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace

import msgspec
import pytest

from dayfly.kube import errors
from dayfly.kube.objects import NAMESPACES, ObjectMeta
from dayfly.operator.cluster.objects import PluginObject, SandboxObject
from dayfly.operator.front.in_use import AGAIN_S, EVERY_S, IN_USE, SETTLE_S, InUse, _plugins
from kube.fake import run

FORBIDDEN = errors.Forbidden("PATCH", "no", status=403)
GONE = errors.NotFound("PATCH", "gone", status=404)


def box(name: str = "box", namespace: str = "shop", *plugins: object) -> SandboxObject:
    spec = {"resources": [{"name": "db", "plugin": plugin} for plugin in plugins]}
    return msgspec.convert({"metadata": {"name": name, "namespace": namespace}, "spec": spec}, SandboxObject)


class Bench:
    """Namespaces and plugins as a server has them; `labelled` are the changes that it was asked for."""

    def __init__(self) -> None:
        self.spaces: dict[str, dict[str, str]] = {"shop": {}}
        self.sandboxes: list[SandboxObject] = []
        self.pods: list[SimpleNamespace] = []
        self.plugins: list[PluginObject] = []
        self.labelled: list[tuple[str, str, str | None]] = []
        self.asked: list[str] = []
        self.sweeps = 0
        self.faults: list[Exception | None] = []
        self.came: list[SandboxObject] = []
        client = SimpleNamespace(get=self._get, patch=self._patch, list_all=self._list)
        self.cluster = SimpleNamespace(client=client, sandboxes=self.sandboxes, pods=self.pods, plugins=self.plugins)
        self.in_use = InUse(self.cluster)

    async def _get(self, _kind, name):
        self.asked.append(name)
        if name not in self.spaces:
            raise errors.NotFound("GET", "gone", status=404)
        return self._space(name)

    def _space(self, name: str):
        return SimpleNamespace(metadata=ObjectMeta(name=name, uid=f"uid-{name}", labels=self.spaces[name]))

    async def _list(self, kind, *, labels):
        assert (kind, labels) == (NAMESPACES, IN_USE)
        self.sweeps += 1
        if self.faults and (fault := self.faults.pop(0)):
            raise fault
        return SimpleNamespace(items=[self._space(name) for name, each in self.spaces.items() if IN_USE in each])

    async def _patch(self, kind, patch, name):
        if self.faults and (fault := self.faults.pop(0)):
            raise fault
        wanted = patch["metadata"]["labels"][IN_USE]
        assert patch["metadata"]["uid"] == f"uid-{name}"
        self.labelled.append((kind.plural, name, wanted))
        self.sandboxes += self.came
        self.came = []

    def publishes(self, name: str, *, labelled: bool = False) -> None:
        labels = {IN_USE: "true"} if labelled else {}
        meta = {"name": name.replace("@", "."), "uid": f"uid-{name.replace('@', '.')}", "labels": labels}
        self.plugins.append(msgspec.convert({"metadata": meta, "spec": {"name": name}}, PluginObject))


class TestMarking:
    def test_its_namespace_and_each_version_of_its_plugins(self):
        async def story():
            bench = Bench()
            for name in ("pg@1.0.0", "pg@2.0.0", "other"):
                bench.publishes(name)
            bench.publishes("mq", labelled=True)
            await bench.in_use.mark(box("box", "shop", "pg@2", "mq", 7))
            return bench.labelled

        assert run(story()) == [
            ("namespaces", "shop", "true"),
            ("resourceplugins", "pg.1.0.0", "true"),
            ("resourceplugins", "pg.2.0.0", "true"),
        ]

    def test_what_is_labelled_is_not_labelled_again(self):
        async def story():
            bench = Bench()
            bench.spaces["shop"] = {IN_USE: "true"}
            await bench.in_use.mark(box())
            return bench.labelled

        assert run(story()) == []

    def test_many_that_come_at_once_ask_for_their_namespace_once(self):
        async def story():
            bench, asked = Bench(), []
            for pause in (0.0, AGAIN_S - 0.5, 0.5):
                await asyncio.sleep(pause)
                await bench.in_use.mark(box())
                asked.append(len(bench.asked))
            return asked

        assert run(story()) == [1, 1, 2]

    def test_one_that_is_gone_is_no_trouble_and_asked_for_again(self):
        async def story():
            bench = Bench()
            bench.spaces.clear()
            await bench.in_use.mark(box())
            bench.spaces["shop"] = {}
            await bench.in_use.mark(box())
            return bench.labelled

        assert run(story()) == [("namespaces", "shop", "true")]

    @pytest.mark.parametrize(("faults", "lines"), [([FORBIDDEN, FORBIDDEN], 1), ([GONE, None], 0)])
    def test_that_it_may_not_is_said_once(self, caplog, faults, lines):
        async def story():
            bench = Bench()
            bench.publishes("pg")
            bench.faults = faults
            await bench.in_use.mark(box("box", "shop", "pg"))

        caplog.set_level(logging.WARNING, "dayfly.operator.front.in_use")
        run(story())
        assert len(caplog.records) == lines


class TestSweeping:
    async def swept(self, bench: Bench, times: int = 2):
        for _ in range(times):
            await bench.in_use.sweep()
        return bench.labelled

    def test_what_is_idle_twice_is_let_go(self):
        async def story(times):
            bench = Bench()
            bench.spaces["shop"] = {IN_USE: "true"}
            bench.publishes("pg@1.0.0", labelled=True)
            return await self.swept(bench, times)

        assert run(story(1)) == []
        assert run(story(2)) == [("namespaces", "shop", None), ("resourceplugins", "pg.1.0.0", None)]

    @pytest.mark.parametrize("by", ["sandbox", "pod"])
    def test_what_is_used_stays(self, by):
        async def story():
            bench = Bench()
            bench.spaces |= {"shop": {IN_USE: "true"}, "idle": {IN_USE: "true"}}
            bench.publishes("pg@1.0.0", labelled=True)
            if by == "pod":
                bench.pods.append(SimpleNamespace(metadata=SimpleNamespace(namespace="shop")))
            bench.sandboxes.append(box("box", "shop" if by == "sandbox" else "other", "pg"))
            return await self.swept(bench)

        assert run(story()) == [("namespaces", "idle", None)]

    def test_one_that_is_used_in_between_begins_anew(self):
        async def story():
            bench = Bench()
            bench.spaces["shop"] = {IN_USE: "true"}
            await bench.in_use.sweep()
            bench.sandboxes.append(box())
            await bench.in_use.sweep()
            bench.sandboxes.clear()
            return await self.swept(bench, 1)

        assert run(story()) == []

    def test_one_that_a_sandbox_came_to_meanwhile_gets_it_back(self):
        """It had found the label there, and set none."""

        async def story():
            bench = Bench()
            bench.spaces["shop"] = {IN_USE: "true"}
            bench.came = [box()]
            return await self.swept(bench)

        assert run(story()) == [("namespaces", "shop", None), ("namespaces", "shop", "true")]

    def test_after_that_a_new_sandbox_asks_for_its_namespace_at_once(self):
        async def story():
            bench = Bench()
            bench.spaces["shop"] = {IN_USE: "true"}
            await bench.in_use.mark(box())
            await self.swept(bench)
            bench.spaces["shop"] = {}
            await bench.in_use.mark(box())
            return bench.labelled[-1]

        assert run(story()) == ("namespaces", "shop", "true")


class TestWhen:
    def test_at_the_start_each_minute_and_twice_after_an_end(self):
        async def story():
            bench, seen = Bench(), []
            bench.faults = [errors.ServerTrouble("GET", "busy")]
            task = asyncio.create_task(bench.in_use.run())
            await asyncio.sleep(0.1)
            seen.append(bench.sweeps)
            await asyncio.sleep(EVERY_S)
            seen.append(bench.sweeps)
            bench.in_use.freed()
            for _ in range(3):
                await asyncio.sleep(SETTLE_S + 0.1)
                seen.append(bench.sweeps)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            return seen

        assert run(story()) == [1, 2, 3, 4, 4]


@pytest.mark.parametrize(
    ("wishes", "names"),
    [([{"plugin": "pg@1"}, {"plugin": "mq"}, {"spec": {}}, "no"], {"pg", "mq", ""}), (None, set()), ({}, set())],
)
def test_plugins_are_named_without_their_versions(wishes, names):
    """Whatever else a Sandbox says there: it is judged elsewhere."""
    seen = msgspec.convert({"metadata": {"name": "x"}, "spec": {"resources": wishes}}, SandboxObject)
    assert _plugins(seen) == names
