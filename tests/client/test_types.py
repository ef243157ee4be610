"""Both clients have the same methods, and public names are imported on first use."""

from __future__ import annotations

import inspect
import subprocess
import sys
import typing

import pytest

import dayfly.client
from dayfly.client import asynchronous, plugins, runs, synchronous, types

TWINS = [
    (runs.AsyncRuns, synchronous.Runs),
    (runs.AsyncSandboxes, synchronous.Sandboxes),
    (runs.AsyncRouteGroups, synchronous.RouteGroups),
    (plugins.AsyncPlugins, synchronous.Plugins),
    (plugins.AsyncBaselines, synchronous.Baselines),
    (asynchronous.AsyncClient, synchronous.Client),
]


@pytest.mark.parametrize(("theirs", "ours"), TWINS)
def test_the_synchronous_client_is_the_asynchronous_one(theirs, ours):
    def public(of):
        return {name for name, each in inspect.getmembers(of, inspect.isfunction) if not name.startswith("_")}

    assert public(ours) == public(theirs)
    for name in public(ours) | ({"__init__"} if ours is synchronous.Client else set()):
        one, other = getattr(ours, name), getattr(theirs, name)
        mine, its = inspect.signature(one), inspect.signature(other)
        assert str(mine.parameters) == str(its.parameters), name
        assert mine.return_annotation == its.return_annotation.replace("AsyncIterator[", "Iterator["), name
        assert inspect.getdoc(one) == inspect.getdoc(other), name


def test_public_names_exist_and_import_lazily():
    for name in dayfly.client.__all__:
        assert getattr(dayfly.client, name).__doc__, name
    with pytest.raises(AttributeError, match="no attribute 'Cleint'"):
        dayfly.client.Cleint  # noqa: B018 # what is refused
    code = "import sys, dayfly.client; print(*sys.modules); from dayfly.client import Client; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    first, second = (set(line.split()) for line in done.stdout.splitlines())
    assert not {"msgspec", "h11", "asyncio", "ssl", "yaml"} & first
    assert not {"asyncio", "ssl", "click", "starlette", "dayfly.server"} & second
    assert typing.get_type_hints(types.Sandbox)
