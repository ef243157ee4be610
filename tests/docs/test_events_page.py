"""The page on events shows one as it is sent, and all types."""

import json
import re

from tests.docs.conftest import ROOT
from tests.server.test_cloud_event_publisher import report

from dayfly.plan import cloud_events

PAGE = (ROOT / "docs" / "guides/cloud-events.md").read_text()


def test_its_event_has_the_form_of_those_that_are_sent():
    (shown,) = re.findall(r"^```json\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    about = cloud_events.EventSubject("u", 1, "urn:x", "demo", "demo", "local")
    sent = cloud_events.cloud_event(about, "ready", report(ready=True))
    assert json.loads(shown).keys() == sent.keys()
    assert json.loads(shown)["data"].keys() == sent["data"].keys()


def test_every_event_type_is_documented():
    assert set(re.findall(r"^\| `dev\.dayfly\.sandbox\.(\w+)`", PAGE, re.MULTILINE)) == set(cloud_events.KINDS)
