"""The film of a terminal that the README shows is of the README's commands, and they still print the same."""

from __future__ import annotations

import html
import re
import runpy
from xml.etree import ElementTree as ET

import pytest
from tests.cli.terminal import Screen
from tests.docs.conftest import ROOT
from tests.docs.transcript import KINDS

FILM = ROOT / "docs" / "recording.svg"
SCRIPT = runpy.run_path(str(ROOT / "scripts" / "recording.py"))
SVG = "{http://www.w3.org/2000/svg}"
AGAIN = "make recording"


def told() -> str:
    """What the film shows at its end, as a reader of screens has it."""
    (text,) = re.findall(r"<desc>(.*)</desc>", FILM.read_text(), re.DOTALL)
    return html.unescape(text)


def comparable(text: str) -> str:
    """One line, for lines break within passwords, without what is never the same twice."""
    text = re.sub(r'(?<="password": ")[^"]+', "PASSWORD", text.replace("\n", " "))
    for pattern, kind in KINDS:
        text = re.sub(pattern, kind, text)
    return re.sub(r" {2,}", " ", text)


def test_recording_types_the_commands_of_the_readme():
    typed = SCRIPT["commands"]((ROOT / "README.md").read_text())
    assert len(typed) == 7
    assert re.findall(r"^\$ (.*)$", told(), re.MULTILINE) == typed, AGAIN


def test_final_picture_of_recording_equals_its_text():
    rows: dict[float, str] = {}
    for group in ET.parse(FILM).iter(f"{SVG}g"):
        if "end" in group.get("class", ""):
            high = float(group.get("transform").split()[-1][:-1])
            for text in group.iter(f"{SVG}text"):
                at = round(float(text.get("x")) / SCRIPT["CELL"])
                rows[high] = rows.get(high, "").ljust(at) + text.text
    assert [rows[high] for high in sorted(rows)] == told().split("\n")


def test_recording_is_small_and_reveals_no_local_paths():
    film = FILM.read_text()
    assert len(film) < 100_000
    assert set(re.findall(r"/(?:home|root|tmp|work)[/\w.-]*", film)) == {"/home/ada/.local/state/dayfly/server.log"}
    assert not re.search(r"<script|@import|url\(|<image|href", film)
    assert "(prefers-color-scheme:dark)" in film
    assert "(prefers-reduced-motion:no-preference)" in film


@pytest.mark.slow
def test_the_same_is_printed_today():
    screen = Screen(SCRIPT["COLUMNS"], SCRIPT["ROWS"])
    with SCRIPT["newcomer"]() as (environment, home):
        typed = SCRIPT["commands"]((ROOT / "README.md").read_text())
        # The usual port may be somebody else's on this machine.
        for said in SCRIPT["play"]([each.replace("--detach", "--detach --port 0") for each in typed], environment):
            printed = "".join(text for _, text in said.printed).replace(home, "/home/ada")
            screen.feed(f"$ {said.command.replace(' --port 0', '')}\r\n{printed}")
    assert comparable(screen.text()) == comparable(told()), AGAIN
