"""What the link asks of a host: the tests' host and the real one have it in common."""

from __future__ import annotations

import inspect

import pytest

from control.fake_host import FakeHost
from dayfly.embedded.host import EmbeddedHost
from dayfly.execute.host_port import Host, KeepingHost

SAID = {**vars(Host), **vars(KeepingHost)}
METHODS = [name for name, value in SAID.items() if inspect.isfunction(value) and not name.startswith("_")]


def test_the_port_has_methods():
    assert len(METHODS) == 20


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("host", [FakeHost, EmbeddedHost])
def test_a_host_is_called_as_the_port_says(host, name):
    wanted, found = getattr(KeepingHost, name), getattr(host, name)
    shape = [(p.name, p.kind) for p in inspect.signature(wanted).parameters.values()]
    assert [(p.name, p.kind) for p in inspect.signature(found).parameters.values()] == shape
    assert inspect.iscoroutinefunction(found) == inspect.iscoroutinefunction(wanted)
