"""The documents of a leak check."""

from __future__ import annotations

from typing import Any

from dayfly.compile import compile, compile_leak_check  # noqa: A004
from dayfly.spec import documents
from dayfly.spec.leak_check import LeakCheck
from dayfly.spec.plugin import Plugin
from dayfly.spec.sandbox import Sandbox

SERVER = {"name": "server", "valueFromSandbox": True, "default": "https://dns.example"}


def plugin() -> Plugin:
    """Return a plugin whose inventory alone reads a param."""
    step = {"script": "#!/bin/sh\n"}
    spec = {"create": [{"name": "make", **step}], "inventory": [{"name": "list", "inputs": [SERVER], **step}]}
    found = documents.from_wire({"name": "record@1.0.0", "spec": spec}, "ResourcePlugin")
    assert isinstance(found, Plugin)
    return found


def check(**params: str) -> LeakCheck:
    spec = {"cluster": "local", "plugin": "record", "every": "1h", "params": params}
    found = documents.from_wire({"name": "records", "spec": spec}, "LeakCheck")
    assert isinstance(found, LeakCheck)
    return found


def digest(**params: Any) -> str:
    """Return the digest of the params of a sandbox's resource that select what the inventory lists."""
    resource = {"name": "it", "plugin": "record@1.0.0", "params": params}
    sandbox = documents.from_wire({"name": "s", "spec": {"cluster": "local", "resources": [resource]}}, "Sandbox")
    assert isinstance(sandbox, Sandbox)
    compiled = compile(sandbox, {("record", "1.0.0"): plugin()}, uid="u", routing_key="k")
    (document,) = (each for each in compiled.documents if each.resource == "it")
    return document.origin.inventory


def test_param_of_the_inventory_alone_has_its_default():
    made = compile_leak_check(check(), plugin()).inventory
    (unit,) = made.pre_start
    assert [(each.name, each.value) for each in unit.inputs] == [("server", "https://dns.example")]
    assert made.origin.inventory == digest() == digest(server="https://dns.example")


def test_other_value_of_that_param_selects_another_list():
    made = compile_leak_check(check(server="https://other.example"), plugin()).inventory
    assert made.origin.inventory == digest(server="https://other.example")
    assert made.origin.inventory != digest()
