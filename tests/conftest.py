"""For all tests: which are played and in which order, with which signals, and how patient Hypothesis is."""

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

from idle import Idle
from minutes import Minutes, Processor
from proof import PLAYED, PLUGIN, SAID, Journal, Proof, proven
from scopes import Scopes, rank
from selection import SELECTION

# A machine that stands still for a moment is no finding. What else Hypothesis sets where CI is set stays as it is.
settings.register_profile("dayfly", settings(deadline=None, suppress_health_check=[HealthCheck.too_slow]))
settings.load_profile("dayfly")

# A shell's `&`, and nohup, have these ignored, and so would everything that a test starts. It starts with the defaults
# where there is a handler, and the tests themselves stay as deaf as they were meant to be.
for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, lambda *_: None)

# `make check` leaves these out: they start programs, play many lives or request every route with every role. It does not
# even import folders that are named here, nor those of the clusters.
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
# As what the tests build (`testcluster.build.cache`): outside of the checkout.
PROOFS = Path(os.environ.get("DAYFLY_CACHE") or Path.home() / ".cache" / "dayfly") / "proof"
# Fixtures of tests that `make check` leaves out: the real command line, a person who types what a page says, a browser.
HEAVY_FIXTURES = {"cli", "served", "person", "browser", "enter"}
# Fixtures of long stories, of which a run plays a slice (tests/selection.py).
LONG_FIXTURES = {"browser", "enter"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--proof-page", type=Path, help="the page in which to write down what was played, and what it found"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Who sums up is the process that the person started, not its workers."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Minutes(config))
        whole = SELECTION.is_complete and config.args_source is pytest.Config.ArgsSource.TESTPATHS
        page = config.getoption("proof_page")
        journal = Journal.of_checkout(PROOFS) if page else None
        config.pluginmanager.register(Proof(page, whole=whole, journal=journal, parts=config.args), PLUGIN)
    else:
        config.pluginmanager.register(Idle())
    config.pluginmanager.register(Processor())


@pytest.fixture
def played(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Notes that a test plays so many of what is exhaustive, for the end of the run and for docs/reliability.md.

    A third argument is the figure that it comes to, where there is more to say than that nothing failed.
    """

    def note(what: str, count: int, said: str = "") -> None:
        request.node.user_properties.append((PLAYED, json.dumps({what: count})))
        if said:
            request.node.user_properties.append((SAID, f"{what}\n{said}"))

    return note


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Whether it is a folder of which the marks that are asked for leave nothing: to load it all takes seconds."""
    wanted = config.option.markexpr
    left_out = (*(HEAVY if "not heavy" in wanted else ()), *([CLUSTERS] if "not cluster" in wanted else ()))
    inside = collection_path.is_relative_to(config.rootpath)
    return (inside and f"{collection_path.relative_to(config.rootpath).as_posix()}/" in left_out) or None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[Any]:
    """Of what is collected nothing goes before the end, so nobody looks for garbage in it: not now, and not later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Nothing of the proof, unless it is asked for. Long files, and those with many slow tests, begin first, so that at
    the end no worker waits for another; but after them those whose tools may have to be built meanwhile, and last those
    of clusters, for a Kubernetes may (`Scopes` knows).
    """
    for item in items:
        _mark_stories(item)
    if not SELECTION.is_complete and "proof" not in config.option.markexpr:
        proof = [item for item in items if item.get_closest_marker("proof")]
        _leave_out(config, items, proof)
        _leave_out(config, items, _of_other_slices(config, items))
    _leave_out(config, items, proven(items, config))
    for item in items if SELECTION.is_complete else []:
        item.add_marker(_at_leisure(config, item), append=False)
    slow = collections.Counter(item.path for item in items if item.get_closest_marker("slow"))
    built, last = ({item.path for item in items if item.get_closest_marker(name)} for name in ("builds", "cluster"))
    ranks = {item.path: rank(item.nodeid.partition("::")[0]) for item in items}
    items.sort(key=lambda item: (item.path in last, item.path in built, ranks[item.path], -slow[item.path]))


def _mark_stories(item: pytest.Item) -> None:
    """Mark what `make check` leaves out, and the long stories."""
    fixtures = set(getattr(item, "fixturenames", ()))
    if item.nodeid.startswith(HEAVY) or not HEAVY_FIXTURES.isdisjoint(fixtures):
        item.add_marker("heavy")
    if not LONG_FIXTURES.isdisjoint(fixtures) and not item.get_closest_marker("long_story"):
        item.add_marker("long_story")


def _of_other_slices(config: pytest.Config, items: list[pytest.Item]) -> list[pytest.Item]:
    """Return the long stories outside the slice. Tests that the command line names one by one are always played.

    The tests of a class stay together, since one may continue where another ended.
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


def _leave_out(config: pytest.Config, items: list[pytest.Item], some: list[pytest.Item]) -> None:
    config.hook.pytest_deselected(items=some)
    left_out = set(some)
    items[:] = [item for item in items if item not in left_out]


def _at_leisure(config: pytest.Config, item: pytest.Item) -> pytest.MarkDecorator:
    """A bound ten times as long: the proof has any time, but a test that hangs is to be told of."""
    mark = item.get_closest_marker("timeout")
    seconds = mark.args[0] if mark else float(config.getini("timeout"))
    return pytest.mark.timeout(10 * seconds, **(mark.kwargs if mark else {}))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scopes | None:
    """What `--dist loadfile` does here."""
    return Scopes(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[Any]:
    """What is built once on a machine is built, or waited for, before the clock of a test runs."""
    wanted = [name for mark in item.iter_markers("builds") for name in mark.args]
    if item.get_closest_marker("cluster") and not os.environ.get("DAYFLY_TEST_KUBECONFIG"):
        wanted.append("kubernetes")
    if wanted:
        import tools  # takes its time, and few tests want any

        for name in wanted:
            tools.ready(name)
    with _logs_as_before():
        return (yield)


@contextlib.contextmanager
def _logs_as_before() -> Iterator[None]:
    """A command that is run in this process has its logs go to what is standard error meanwhile; the next test's do not."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
