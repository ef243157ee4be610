"""Each way of docs/first-steps.md, followed literally by somebody new, takes no longer than the page allows."""

from __future__ import annotations

import runpy

import pytest

from docs.conftest import ROOT

SCRIPT = runpy.run_path(str(ROOT / "scripts" / "newcomer.py"))
WAYS = SCRIPT["WAYS"]


def test_the_page_has_the_figures_of_each_way():
    told = (ROOT / "docs" / "first-steps.md").read_text().partition(SCRIPT["BEGIN"])[2].partition(SCRIPT["END"])[0]
    lines = [line.strip("| ").split(" | ") for line in told.splitlines() if line.startswith("| ")][1:]
    assert [(line[0], line[-1]) for line in lines] == [(way.to, f"{way.minutes:g} min") for way in WAYS.values()]


@pytest.mark.proof
@pytest.mark.builds("kubernetes")
@pytest.mark.timeout(1800, func_only=True)
@pytest.mark.parametrize("name", WAYS)
def test_it_takes_no_longer_than_promised(name, played):
    way, took = WAYS[name], SCRIPT["took"](name)
    minutes = took.seconds / 60
    played(f"the way to {way.to}, by the clock", 1, f"{minutes:.1f} of {way.minutes:g} min")
    assert minutes < way.minutes, took
