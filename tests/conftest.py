"""For all tests: their selection and order, signal handlers, and the profile of Hypothesis."""

from __future__ import annotations

import collections
import contextlib
import gc
import json
import logging
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from tests.fixture_release import FixtureRelease
from tests.proof import PLAYED, PLUGIN, SAID, Journal, Proof, proven
from tests.run_summary import CpuTimer, RunSummary
from tests.scopes import Scopes, rank
from tests.selection import SELECTION

# A slow machine is not a failure, so there is no deadline. The other settings of Hypothesis for CI stay.
settings.register_profile("dayfly", settings(deadline=None, suppress_health_check=[HealthCheck.too_slow]))
settings.load_profile("dayfly")

# `&` in a shell and nohup ignore these signals, and child processes inherit that. With a handler that does nothing, children
# get the default, and this process still ignores the signals.
for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, lambda *_: None)

# `make check` skips these: they start programs, run many lives of a sandbox, or request every route with every role. It does
# not import folders in this list or the cluster tests.
HEAVY = (
    *("tests/examples/", "tests/pytest_plugin/", "tests/runner/", "tests/conformance/"),
    *(
        "tests/operator/test_agent",
        "tests/operator/test_schedules.py",
        "tests/spec/test_glob.py",
        "tests/test_selection.py",
    ),
    *("tests/server/test_crash.py", "tests/server/test_fuzz.py", "tests/server/test_store.py"),
    *("tests/server/test_fleet.py", "tests/server/test_lossy.py", "tests/server/test_rights.py"),
    *("tests/server/test_schemathesis.py", "tests/server/test_sdk.py", "tests/page/test_browser.py"),
    *("tests/embedded/test_container", "tests/embedded/test_routes.py", "tests/embedded/test_forks.py"),
    "tests/simulator/test_machine.py",
)
CLUSTERS = "tests/cluster/"
# In the cache of the programs that tests build, outside of the checkout.
PROOFS = Path(os.environ.get("DAYFLY_CACHE") or Path.home() / ".cache" / "dayfly") / "proof"
# Tests with these fixtures are skipped by `make check`: the real CLI, a person who types the commands of a page, a browser.
HEAVY_FIXTURES = {"cli", "served", "person", "browser", "enter"}
# Tests with these fixtures are long stories; a run plays a slice of these (tests/selection.py).
LONG_FIXTURES = {"browser", "enter"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--proof-page", type=Path, help="write the table of the proof into this page")


def pytest_configure(config: pytest.Config) -> None:
    """Register the summaries in the main process, and the release of fixtures in the workers."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(RunSummary(config))
        whole = SELECTION.is_complete and config.args_source is pytest.Config.ArgsSource.TESTPATHS
        page = config.getoption("proof_page")
        journal = Journal.of_checkout(PROOFS) if page else None
        config.pluginmanager.register(Proof(page, whole=whole, journal=journal, parts=config.args), PLUGIN)
    else:
        config.pluginmanager.register(FixtureRelease())
    config.pluginmanager.register(CpuTimer())


@pytest.fixture
def played(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Return a function that counts members of an exhaustive family, for the summary and for tests/proof.md.

    Its third argument is a figure of the test, shown instead of "nothing".
    """

    def note(what: str, count: int, said: str = "") -> None:
        request.node.user_properties.append((PLAYED, json.dumps({what: count})))
        if said:
            request.node.user_properties.append((SAID, f"{what}\n{said}"))

    return note


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip folders without a selected test; importing them takes seconds."""
    marks = config.option.markexpr
    skipped = (*(HEAVY if "not heavy" in marks else ()), *([CLUSTERS] if "not cluster" in marks else ()))
    inside = collection_path.is_relative_to(config.rootpath)
    return (inside and f"{collection_path.relative_to(config.rootpath).as_posix()}/" in skipped) or None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[Any]:
    """Exclude the collected tests from garbage collection: they live until the end of the run."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests of the proof and of other slices, unless `-m proof` selects the proof, and sort the others.

    Slow files start first, so that all workers end at about the same time. Then come files whose programs are built during the
    run, and cluster tests last, because Kubernetes is built during the run (see `Scopes`).
    """
    for item in items:
        _mark_stories(item)
    selects_proof = "proof" in config.option.markexpr.replace("not proof", "")
    if not SELECTION.is_complete and not selects_proof:
        proof = [item for item in items if item.get_closest_marker("proof")]
        _deselect(config, items, proof)
        _deselect(config, items, _of_other_slices(config, items))
    _deselect(config, items, proven(items, config))
    for item in items if SELECTION.is_complete else []:
        item.add_marker(_longer_timeout(config, item), append=False)
    slow = collections.Counter(item.path for item in items if item.get_closest_marker("slow"))
    built, last = ({item.path for item in items if item.get_closest_marker(name)} for name in ("builds", "cluster"))
    ranks = {item.path: rank(item.nodeid.partition("::")[0]) for item in items}
    items.sort(key=lambda item: (item.path in last, item.path in built, ranks[item.path], -slow[item.path]))


def _mark_stories(item: pytest.Item) -> None:
    """Mark the tests that `make check` skips, and the long stories."""
    fixtures = set(getattr(item, "fixturenames", ()))
    if item.nodeid.startswith(HEAVY) or not HEAVY_FIXTURES.isdisjoint(fixtures):
        item.add_marker("heavy")
    if not LONG_FIXTURES.isdisjoint(fixtures) and not item.get_closest_marker("long_story"):
        item.add_marker("long_story")


def _of_other_slices(config: pytest.Config, items: list[pytest.Item]) -> list[pytest.Item]:
    """Return the long stories outside of the slice. Tests that the command line names one by one are always selected.

    The tests of a class stay together, because they may depend on each other.
    """
    if any("::" in each for each in config.args):
        return []
    stories: dict[str, dict[pytest.Item | pytest.Class, list[pytest.Item]]] = {}
    for item in items:
        if item.get_closest_marker("long_story"):
            file = item.path.relative_to(config.rootpath).as_posix()
            stories.setdefault(file, {}).setdefault(item.getparent(pytest.Class) or item, []).append(item)
    return [
        item
        for file, units in stories.items()
        for index, tests in enumerate(units.values())
        if not SELECTION.plays_story(file, index)
        for item in tests
    ]


def _deselect(config: pytest.Config, items: list[pytest.Item], some: list[pytest.Item]) -> None:
    config.hook.pytest_deselected(items=some)
    deselected = set(some)
    items[:] = [item for item in items if item not in deselected]


def _longer_timeout(config: pytest.Config, item: pytest.Item) -> pytest.MarkDecorator:
    """Return a timeout ten times as long: the proof may be slow, but a hanging test must fail."""
    mark = item.get_closest_marker("timeout")
    seconds = mark.args[0] if mark else float(config.getini("timeout"))
    return pytest.mark.timeout(10 * seconds, **(mark.kwargs if mark else {}))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scopes | None:
    """Return our scheduler for `--dist loadfile`."""
    return Scopes(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[Any]:
    """Build the programs of a test, or wait for them, before its timeout starts."""
    wanted = [name for mark in item.iter_markers("builds") for name in mark.args]
    if item.get_closest_marker("cluster") and not os.environ.get("DAYFLY_TEST_KUBECONFIG"):
        wanted.append("kubernetes")
    if wanted:
        from tests import tools  # slow to import, and few tests need it

        for name in wanted:
            tools.ready(name)
    with _restored_logging():
        return (yield)


@contextlib.contextmanager
def _restored_logging() -> Iterator[None]:
    """Restore the log handlers afterwards: a command that runs in this process sets its own."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
