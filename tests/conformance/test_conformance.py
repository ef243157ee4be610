"""Both hosts play each story with the same moves and report it in the same words."""

import os
import re

import msgspec
import pytest
from tests.conformance import cluster
from tests.conformance import machine as embedded
from tests.conformance.story_documents import STORIES, toy
from tests.conformance.story_log import GOLDEN, text
from tests.conformance.toy_kind import Toys
from tests.embedded import documents as doc

from dayfly.spec.host_errors import DocumentsRefusedError
from dayfly.spec.lifecycle import UnitTimeouts

# Stories whose golden files differ by host, with the reason. All other stories have one file.
APART = {
    "a kind that this host has not": "objects are for clusters, so the kinds that a host names are not the same",
    "a fork follows its baseline": "a Deployment is changed in place; a process keeps its form, so another attempt "
    "replaces it",
    "the host ends between a claim and its start": "any operator may open the gate of a claimed pod; the launcher of a "
    "process is gone, so the attempt is fenced and another one follows",
}


def held(title: str, moves: list[str], looks: list[list[str]], host: str) -> None:
    """Compare the text with the golden file of the story, or of the story and host."""
    file = GOLDEN / f"{title.replace(' ', '_')}{f'.{host}' if title in APART else ''}.golden"
    told = text(title.capitalize(), moves, looks)
    if os.environ.get("DAYFLY_GOLDEN"):
        file.write_text(told)
    assert told == file.read_text()


NEW = "a kind that is new"
# The calls that an executor receives, without those for gates.
ASKED = [
    "launch db/make#1",
    "release db/make#1",
    "launch toy:play#1",
    "cancel toy:play#1",
    "release toy:play#1",
    "launch db/undo#1",
    "release db/undo#1",
    "clear",
]


@pytest.mark.parametrize("title", STORIES)
def test_operator_matches_the_conformance_golden(title):
    moves, looks, toys = cluster.tell(STORIES[title])
    held(title, moves, looks, "cluster")
    if title == NEW:
        prepared = [f"prepare {name}#1" for name in ("db/make", "db/undo", "toy:play")]
        assert sorted(toys) == sorted(ASKED + prepared)


@pytest.mark.parametrize("title", STORIES)
async def test_embedded_host_matches_the_conformance_golden(machine, title):
    moves, looks, toys = await embedded.tell(machine, STORIES[title])
    held(title, moves, looks, "machine")
    if title == NEW:
        assert sorted(toys) == sorted(ASKED)


async def test_unsupported_unit_is_refused_by_its_kind(machine):
    """The registration of a kind declares what it admits."""
    unit = msgspec.structs.replace(toy("make"), timeouts=UnitTimeouts(run_ms=1))
    documents = (doc.resource("db", (unit,), ()),)
    with pytest.raises(
        DocumentsRefusedError,
        match="db/make: this host runs units of kind acquire, exec, fork, preview, route and webhook, not toy",
    ):
        machine.host.admit(documents, ())
    engine = await embedded.opened(machine)
    engine.executors.add(Toys(lambda live: live.run, lambda _: None, gated=False))
    with pytest.raises(DocumentsRefusedError, match="db/make: no toy is played with for less than a second"):
        machine.host.admit(documents, ())


def test_every_story_has_a_golden_file():
    told = {title for title in STORIES if title not in APART} | {
        f"{t}.{on}" for t in APART for on in ("cluster", "machine")
    }
    assert {file.stem.replace("_", " ") for file in GOLDEN.iterdir()} == told


@pytest.mark.parametrize("title", APART)
def test_host_specific_goldens_differ_only_in_moves(title):
    """The reports of both files are the same."""
    told = [(GOLDEN / f"{title.replace(' ', '_')}.{host}.golden").read_text() for host in ("cluster", "machine")]
    assert told[0] != told[1]
    spoken = [text.partition("written:")[0] for text in told]
    said = {re.sub(r"#\d|(?<=units of kind ).*?(?=, not)", "", each) for each in spoken}
    assert len(said) == 1
