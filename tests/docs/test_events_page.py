"""The reference of events has the form and the types of events that are sent."""

import json
import re

from tests.docs.conftest import ROOT
from tests.server.test_cloud_event_publisher import report

from dayfly.lib import delivery
from dayfly.operator.status import sandbox_events
from dayfly.plan import cloud_events, retry
from dayfly.server.events import cloud_event_publisher, event_rows
from dayfly.spec.leak_check import LeakCheckSpec
from dayfly.spec.leak_report import LeakReport

PAGE = (ROOT / "docs" / "reference" / "events.md").read_text()
GUIDE = (ROOT / "docs" / "guides" / "cloud-events.md").read_text()
ABOUT = cloud_events.EventSubject("u", 1, "urn:x", "demo", "demo", "local")
SENT = cloud_events.cloud_event(ABOUT, "ready", report(ready=True))
POOL_EVENT = cloud_events.PoolEvent("u/1/paused", "paused", 1, "Paused", "m")
SENT_OF_POOL = cloud_events.pool_cloud_event(POOL_EVENT, source="urn:x", name="small", cluster="local")
CHECK = LeakReport(name="items", spec=LeakCheckSpec(plugin="bucket"), plugin="bucket@1.0.0")
SENT_OF_CHECK = cloud_events.leak_cloud_event("found", "u/1/found", CHECK, [], source="urn:x")


def first_column(heading: str) -> set[str]:
    """Return the names in the first column of the table below a heading."""
    table = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return {name for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in re.findall(r"`(.+?)`", row)}


def test_example_event_has_the_form_of_sent_events():
    (shown,) = re.findall(r"^```json\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert json.loads(shown).keys() == SENT.keys()
    assert json.loads(shown)["data"].keys() == SENT["data"].keys()


def test_every_event_type_is_documented():
    of_sandboxes = {f"{cloud_events.TYPE}{kind}" for kind in cloud_events.KINDS}
    of_pools = {f"{cloud_events.POOL_TYPE}{kind}" for kind in cloud_events.POOL_KINDS}
    of_checks = {f"{cloud_events.LEAK_TYPE}{kind}" for kind in cloud_events.LEAK_KINDS}
    assert first_column("Types") == of_sandboxes | of_pools | of_checks


def test_every_event_attribute_and_data_field_is_documented():
    assert first_column("Attributes") | {"data"} == SENT.keys() == SENT_OF_POOL.keys() == SENT_OF_CHECK.keys()
    assert first_column("Data") == SENT["data"].keys() | SENT_OF_POOL["data"].keys() | SENT_OF_CHECK["data"].keys()


def test_numbers_of_events_are_those_of_the_code():
    assert (retry.STUCK_AFTER, delivery.MAX_CONCURRENT, delivery.DROP_AFTER_S) == (5, 8, 86_400)
    assert "five times" in PAGE
    assert "eight events" in PAGE
    assert cloud_events.CONTENT_TYPE in PAGE
    assert f"at most {event_rows.MAX_PENDING} for each organisation" in GUIDE
    assert f"in memory, at most {sandbox_events.MAX_WAITING_EVENTS:,}." in GUIDE
    assert f"takes over within {cloud_event_publisher.LEASE_MS // 1000} seconds" in GUIDE
