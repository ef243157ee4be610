"""A Sandbox that is nested as deeply as the API server accepts, which our JSON decoder does not: its author's fault."""

from __future__ import annotations

import contextlib
import dataclasses

import pytest
from tests.operator.rig import world as worlds
from tests.operator.rig.fork_stories import play
from tests.operator.rig.scenes import gone, ready, wish
from tests.operator.rig.world import World

DEEP = b"[" * 9_000 + b"]" * 9_000


class Nesting(worlds.ProcessConnection):
    """Replace DEEP in the fake cluster's answers and events by a deeply nested value."""

    async def send(self, request):
        answer = await super().send(request)
        return dataclasses.replace(answer, body=answer.body.replace(b'"DEEP"', DEEP))

    @contextlib.asynccontextmanager
    async def stream(self, request):
        async def nested(chunks):
            async for chunk in chunks:
                yield chunk.replace(b'"DEEP"', DEEP)

        async with super().stream(request) as stream:
            yield dataclasses.replace(stream, chunks=nested(stream.chunks))


@pytest.fixture(autouse=True)
def _nesting(monkeypatch):
    monkeypatch.setattr(worlds, "ProcessConnection", Nesting)


async def refused(world: World, name: str) -> None:
    await world.until(lambda: world.status(name).get("reason") == "Refused", "the refusal", 60)
    assert "is nested too deeply to be read" in world.status(name)["message"]


def test_deeply_nested_new_sandbox_is_refused_alone():
    async def story(world: World) -> None:
        world.sandbox(wish(middleware=[{"name": "DEEP"}]), "deep")
        await refused(world, "deep")
        world.sandbox(wish())
        await world.until(lambda: ready(world), "another", 300)
        await world.processes.pop().end()
        world.start()  # the next one lists it
        world.delete("deep")
        await world.until(lambda: world.box("deep") is None, "it to go", 60)
        world.delete()
        await gone(world)

    play(story)


def test_deeply_nested_edit_changes_nothing_until_deletion():
    async def story(world: World) -> None:
        world.sandbox(wish())
        await world.until(lambda: ready(world), "ready", 300)
        world.change({"spec": {"routing": {"x": "DEEP"}}})
        await refused(world, "box")
        assert not [e for e in world.cloud.log if e.unit == "db/drop"]
        world.delete()
        await gone(world)

    play(story)
