"""The recording of a terminal in the README shows the README's commands, and they still print the same."""

from __future__ import annotations

import html
import re
import runpy
from xml.etree import ElementTree as ET

import pytest
from tests.cli.terminal import Screen
from tests.docs.conftest import ROOT
from tests.docs.transcript import KINDS

RECORDING = ROOT / "docs" / "recording.svg"
SCRIPT = runpy.run_path(str(ROOT / "scripts" / "recording.py"))
SVG = "{http://www.w3.org/2000/svg}"
REMEDY = "run: make recording"


def final_text() -> str:
    """Return the final screen of the recording, as a screen reader gets it."""
    (text,) = re.findall(r"<desc>(.*)</desc>", RECORDING.read_text(), re.DOTALL)
    return html.unescape(text)


def comparable(text: str) -> str:
    """Return one line, because lines break within passwords, without values that differ in each run."""
    text = re.sub(r'(?<="password": ")[^"]+', "PASSWORD", text.replace("\n", " "))
    for pattern, kind in KINDS:
        text = re.sub(pattern, kind, text)
    return re.sub(r" {2,}", " ", text)


def test_recording_types_the_commands_of_the_readme():
    typed = SCRIPT["commands"]((ROOT / "README.md").read_text())
    assert len(typed) == 7
    assert re.findall(r"^\$ (.*)$", final_text(), re.MULTILINE) == typed, REMEDY


def test_final_picture_of_recording_equals_its_text():
    rows: dict[float, str] = {}
    for group in ET.parse(RECORDING).iter(f"{SVG}g"):
        if "end" in group.get("class", ""):
            high = float(group.get("transform").split()[-1][:-1])
            for text in group.iter(f"{SVG}text"):
                at = round(float(text.get("x")) / SCRIPT["CELL"])
                rows[high] = rows.get(high, "").ljust(at) + text.text
    assert [rows[high] for high in sorted(rows)] == final_text().split("\n")


def test_recording_is_small_and_reveals_no_local_paths():
    recording = RECORDING.read_text()
    assert len(recording) < 100_000
    assert set(re.findall(r"/(?:home|root|tmp|work)[/\w.-]*", recording)) == {
        "/home/ada/.local/state/dayfly/server.log"
    }
    assert not re.search(r"<script|@import|url\(|<image|href", recording)
    assert "(prefers-color-scheme:dark)" in recording
    assert "(prefers-reduced-motion:no-preference)" in recording


@pytest.mark.slow
def test_recorded_commands_still_print_the_same():
    screen = Screen(SCRIPT["COLUMNS"], SCRIPT["ROWS"])
    with SCRIPT["newcomer"]() as (environment, home):
        typed = SCRIPT["commands"]((ROOT / "README.md").read_text())
        # Another program may use the default port.
        for said in SCRIPT["play"]([each.replace("--detach", "--detach --port 0") for each in typed], environment):
            printed = "".join(text for _, text in said.printed).replace(home, "/home/ada")
            screen.feed(f"$ {said.command.replace(' --port 0', '')}\r\n{printed}")
    assert comparable(screen.text()) == comparable(final_text()), REMEDY
