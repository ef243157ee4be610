"""Fixtures for pytest: resources and sandboxes for a test, a module or a session.

pytest imports this file in every project that has Dayfly installed, so it imports `resources` only when a test asks
for a fixture. Each xdist worker has its own session resources, and each scope deletes what it made and waits for the
end. All of it lives by a lease of one minute, so the server deletes it if the process dies. All workers share one
server, which stops after the last of them; `DAYFLY_URL` or `--dayfly-server` names another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from dayfly.pytest_plugin.resources import Making

_KEPT = "dayfly kept"
_SCOPES = ("function", "module", "session")
_MAKING: pytest.StashKey[Making] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Ours."""
    group = parser.getgroup("dayfly", "short-lived resources")
    group.addoption(
        "--dayfly-keep", action="store_true", help="Keep what a failed test had for an hour, and say how to look at it."
    )
    group.addoption("--dayfly-server", metavar="NAME", default="", help="Ask this server (see: dayfly login).")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Let go of the server."""
    making = config.stash.get(_MAKING, None)
    if making is not None:
        making.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """What was kept travels with the report of the test after which it was, from xdist's workers too."""
    report = yield
    making = item.config.stash.get(_MAKING, None)
    if making is not None and making.kept:
        report.user_properties += [(_KEPT, line) for line in making.kept]
        making.kept.clear()
    return report


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say what was kept."""
    reports = [report for of in terminalreporter.stats.values() for report in of]
    kept = [line for each in reports for name, line in getattr(each, "user_properties", ()) if name == _KEPT]
    if kept:
        terminalreporter.section("kept by --dayfly-keep")
        for line in kept:
            terminalreporter.write_line(line)


def _making(config: pytest.Config) -> Making:
    if _MAKING not in config.stash:
        from dayfly.pytest_plugin.resources import Making

        config.stash[_MAKING] = Making(config)
    return config.stash[_MAKING]


def _factory(scope: Any, name: str, method: str, says: str) -> Any:
    def fixture(request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
        making = _making(request.config)
        from dayfly.pytest_plugin.resources import shown

        with making.scope(request) as of:
            yield shown(getattr(of, method))

    fixture.__doc__ = says
    return pytest.fixture(scope=scope, name=name if scope == "function" else f"{name}_{scope}")(fixture)


_RESOURCE = """A factory: `dayfly_resource(PLUGIN, **params)` makes a resource and gives its outputs.

PLUGIN is a plugin's file or folder, beside the test or below the root; or the name of a published one.
"""
_SANDBOX = (
    """A factory: `dayfly_sandbox(FILE, **variables)` makes a sandbox of a file or folder, plugins in it in place."""
)

dayfly_resource, dayfly_resource_module, dayfly_resource_session = (
    _factory(scope, "dayfly_resource", "resource", _RESOURCE) for scope in _SCOPES
)
dayfly_sandbox, dayfly_sandbox_module, dayfly_sandbox_session = (
    _factory(scope, "dayfly_sandbox", "sandbox", _SANDBOX) for scope in _SCOPES
)
