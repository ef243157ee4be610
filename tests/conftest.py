"""For all tests: in which order they run."""

from __future__ import annotations

import collections

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with many slow tests begin first, so that at the end no worker waits for another."""
    slow = collections.Counter(item.path for item in items if item.get_closest_marker("slow"))
    items.sort(key=lambda item: -slow[item.path])
