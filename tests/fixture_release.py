"""Tear down a session's cluster as soon as its worker reaches a test that does not need it.

An idle API server takes 3 % of a CPU, and an idle cluster with a node 4 %. Without this, several of them would run until the
end of the session.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests import scopes

# Fixtures with the scope `session`, and a predicate for the scopes of tests that use them.
USERS = {
    "cluster": lambda scope: scopes.need(scope) is scopes.Need.CLUSTER,
    "api": lambda scope: scopes.need(scope) is scopes.Need.SERVER,
    "kubeconfig": lambda scope: scope == scopes.scope("tests/kube/test_auth.py"),
}


class FixtureRelease:
    """A plugin for workers, which receive their tests scope by scope. A run in one process has another order."""

    def __init__(self) -> None:
        self._active: dict[str, tuple[pytest.FixtureDef[Any], Any]] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest) -> Any:
        made = yield
        if fixturedef.argname in USERS and fixturedef.scope == "session":
            self._active[fixturedef.argname] = fixturedef, request
        return made

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, nextitem: pytest.Item | None) -> Iterator[None]:
        """Run after the teardown of the test itself. A later test that needs the fixture sets it up again."""
        yield
        if nextitem is None:  # the session ends them itself
            return
        scope = scopes.scope(nextitem.nodeid)
        for name in [name for name in self._active if not USERS[name](scope)]:
            fixture, request = self._active.pop(name)
            fixture.finish(request)
