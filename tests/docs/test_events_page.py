"""The page on events shows one as it is sent, and all types."""

import json
import re

from cli.test_events_out import sandbox
from dayfly.cli import events_out
from docs.conftest import ROOT

PAGE = (ROOT / "docs" / "events.md").read_text()


def test_its_event_has_the_form_of_those_that_are_sent():
    (shown,) = re.findall(r"^```json\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    sent = events_out.cloud_event(sandbox(ready=True), "ready", "urn:x")
    assert json.loads(shown).keys() == sent.keys()
    assert json.loads(shown)["data"].keys() == sent["data"].keys()


def test_it_has_every_type():
    soon = {"conditions": [{"type": "ExpiresSoon", "status": "True"}]}
    states = ({"ready": True, **soon}, {"reason": "ResourceFailed"}, {"reason": "CleanupStuck"})
    every = {kind for status in states for kind in events_out.kinds(sandbox(**status))}
    assert set(re.findall(r"^\| `dev\.dayfly\.sandbox\.(\w+)`", PAGE, re.MULTILINE)) == every
