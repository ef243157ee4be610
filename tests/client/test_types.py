"""Both clients mean the same, and what comes back has the form in which the server describes itself."""

from __future__ import annotations

import inspect
import subprocess
import sys
import typing

import msgspec
import pytest

import dayfly.client
from dayfly.client import asynchronous, runs, synchronous, things, types
from dayfly.control import openapi
from dayfly.spec.report import UnitReport

SCHEMAS = openapi.document("1")["components"]["schemas"]


@pytest.mark.parametrize(
    "name",
    [
        "Sandbox",
        "RouteGroup",
        "RouteGroupStatus",
        "Plugin",
        "Baseline",
        "Report",
        "Blocker",
        "Attempt",
        "Move",
        "Output",
    ],
)
def test_a_type_is_the_servers(name):
    _held(name, name)


def test_a_sandboxs_status_is_the_servers():
    _held("Status", "SandboxStatus")


def _held(ours, theirs):
    _, found = msgspec.json.schema_components([getattr(types, ours)], ref_template="{name}")
    mine, said = found[ours], SCHEMAS[theirs]
    assert mine["properties"].keys() == said["properties"].keys(), "neither more nor less"
    required = set(mine.get("required", ()))
    assert required <= set(said.get("required", ())), "what the server may leave out has a default"
    for field in said["properties"]:
        _same(mine["properties"][field], said["properties"][field], found, f"{ours}.{field}")


def _same(mine, said, found, where):
    if "$ref" in mine:
        inner = SCHEMAS.get(said["$ref"].rpartition("/")[2]) if "$ref" in said else said
        assert inner is not None, where
        assert inner["type"] == "object", where
        return
    if "anyOf" in mine:
        kinds = [each.get("type") for each in mine["anyOf"] if each.get("type") != "null"]
        wanted = [each.get("type") for each in said.get("anyOf", [said]) if each.get("type") != "null"]
        assert kinds == wanted, where
        return
    words = said.get("enum")
    assert mine.get("enum", words) == words, where
    assert mine.get("type") == said.get("type", "string" if words and "enum" not in mine else None), where
    if mine.get("type") == "array":
        _same(mine["items"], said["items"], found, f"{where}[]")


def test_a_unit_is_what_a_host_says_of_it():
    ours = {field.encode_name: field.required for field in msgspec.structs.fields(types.Unit)}
    theirs = {field.encode_name: field.required for field in msgspec.structs.fields(UnitReport)}
    assert theirs.keys() - ours.keys() == {"template"}, "which only whoever shows clocks needs"
    assert {name for name, required in ours.items() if required} <= {n for n, required in theirs.items() if required}
    assert ours.keys() <= theirs.keys()


TWINS = [
    (runs.AsyncRuns, synchronous.Runs),
    (runs.AsyncSandboxes, synchronous.Sandboxes),
    (runs.AsyncRouteGroups, synchronous.RouteGroups),
    (things.AsyncPlugins, synchronous.Plugins),
    (things.AsyncBaselines, synchronous.Baselines),
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


def test_all_that_is_public_is_there_and_costs_nothing_before_it_is_used():
    for name in dayfly.client.__all__:
        assert getattr(dayfly.client, name).__doc__, name
    with pytest.raises(AttributeError, match="no attribute 'Cleint'"):
        dayfly.client.Cleint  # noqa: B018 # what is refused
    code = "import sys, dayfly.client; print(*sys.modules); from dayfly.client import Client; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    first, second = (set(line.split()) for line in done.stdout.splitlines())
    assert not {"msgspec", "h11", "asyncio", "ssl", "yaml"} & first
    assert not {"asyncio", "ssl", "click", "starlette", "dayfly.control"} & second
    assert typing.get_type_hints(types.Sandbox)
