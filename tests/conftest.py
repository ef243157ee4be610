"""For all tests: in which order they run, with which signals, and how patient Hypothesis is."""

from __future__ import annotations

import collections
import signal

import pytest
from hypothesis import HealthCheck, settings

# A machine that stands still for a moment is no finding. What else Hypothesis sets where CI is set stays as it is.
settings.register_profile("dayfly", settings(deadline=None, suppress_health_check=[HealthCheck.too_slow]))
settings.load_profile("dayfly")

# A shell's `&`, and nohup, have these ignored, and so would everything that a test starts. It starts with the defaults
# where there is a handler, and the tests themselves stay as deaf as they were meant to be.
for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, lambda *_: None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with many slow tests begin first, so that at the end no worker waits for another."""
    slow = collections.Counter(item.path for item in items if item.get_closest_marker("slow"))
    items.sort(key=lambda item: -slow[item.path])
