"""Fixtures for pytest: resources and sandboxes for a test, a module or a session.

pytest imports this file in every project that has Dayfly installed, so it imports `resources` only when a test uses
a fixture. Each xdist worker has its own session resources. Each scope deletes its resources at its end and waits until
they are gone. Resources have a lease of one minute, so the server deletes them if the process is killed. All workers
share one server, which stops after the last worker. `DAYFLY_URL`, `--dayfly-server` or `--dayfly-home` selects another
server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from dayfly.pytest_plugin.resources import PluginSession

_KEPT = "dayfly kept"
_SCOPES = ("function", "module", "session")
_SESSION: pytest.StashKey[PluginSession] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options `--dayfly-keep`, `--dayfly-server` and `--dayfly-home`."""
    group = parser.getgroup("dayfly", "short-lived resources")
    group.addoption(
        "--dayfly-keep",
        action="store_true",
        help="Keep the resources of a failed test for an hour, and print how to inspect them.",
    )
    group.addoption("--dayfly-server", metavar="NAME", default="", help="Use this server (see: dayfly login).")
    group.addoption("--dayfly-home", action="store_true", help="Use the server of `dayfly up`, which may have pools.")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop using the server."""
    session = config.stash.get(_SESSION, None)
    if session is not None:
        session.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """Add kept sandboxes to the report of the test, which xdist sends from its workers."""
    report = yield
    session = item.config.stash.get(_SESSION, None)
    if session is not None and session.kept:
        report.user_properties += [(_KEPT, line) for line in session.kept]
        session.kept.clear()
    return report


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the kept sandboxes."""
    reports = [report for group in terminalreporter.stats.values() for report in group]
    kept = [line for each in reports for name, line in getattr(each, "user_properties", ()) if name == _KEPT]
    if kept:
        terminalreporter.section("kept by --dayfly-keep")
        for line in kept:
            terminalreporter.write_line(line)


def _plugin_session(config: pytest.Config) -> PluginSession:
    if _SESSION not in config.stash:
        from dayfly.pytest_plugin.resources import PluginSession

        config.stash[_SESSION] = PluginSession(config)
    return config.stash[_SESSION]


def _factory(scope: Any, name: str, method: str, doc: str) -> Any:
    def fixture(request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
        session = _plugin_session(request.config)
        from dayfly.pytest_plugin.resources import hide_traceback

        with session.scope(request) as factories:
            yield hide_traceback(getattr(factories, method))

    fixture.__doc__ = doc
    return pytest.fixture(scope=scope, name=name if scope == "function" else f"{name}_{scope}")(fixture)


_RESOURCE = """Return a factory: `dayfly_resource(PLUGIN, **params)` creates a resource and returns its outputs.

PLUGIN is the file or folder of a plugin, relative to the test or to the root, or the name of a published plugin.
"""
_SANDBOX = """Return a factory: `dayfly_sandbox(FILE, **variables)` creates a sandbox from a file or folder.

Plugins in FILE are not published.
"""

dayfly_resource, dayfly_resource_module, dayfly_resource_session = (
    _factory(scope, "dayfly_resource", "resource", _RESOURCE) for scope in _SCOPES
)
dayfly_sandbox, dayfly_sandbox_module, dayfly_sandbox_session = (
    _factory(scope, "dayfly_sandbox", "sandbox", _SANDBOX) for scope in _SCOPES
)
