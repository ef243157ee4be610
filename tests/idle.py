"""Ends a cluster as soon as the worker that has it goes on to tests that need none.

What nobody asks anything still takes its part of a processor: a bare API server 3 % of one, a cluster with a node 4 %. A run has several, and each was to stand until the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import scopes

# Fixtures of a whole session, and in which scopes they are asked for.
WANTED = {
    "cluster": lambda scope: scopes.need(scope) is scopes.Need.CLUSTER,
    "api": lambda scope: scopes.need(scope) is scopes.Need.SERVER,
    "kubeconfig": lambda scope: scope == scopes.scope("tests/kube/test_auth.py"),
}


class Idle:
    """In a worker, which is given its tests scope by scope. Who plays all in one process plays them in another order."""

    def __init__(self) -> None:
        self._standing: dict[str, tuple[pytest.FixtureDef[Any], Any]] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest) -> Any:
        made = yield
        if fixturedef.argname in WANTED and fixturedef.scope == "session":
            self._standing[fixturedef.argname] = fixturedef, request
        return made

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, nextitem: pytest.Item | None) -> Iterator[None]:
        """After what the test itself has torn down. Whoever should ask for one again has it made again."""
        yield
        if nextitem is None:  # the session ends them itself
            return
        scope = scopes.scope(nextitem.nodeid)
        for name in [name for name in self._standing if not WANTED[name](scope)]:
            fixture, request = self._standing.pop(name)
            fixture.finish(request)
