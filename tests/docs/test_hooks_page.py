"""The guide to hooks: its commands print what it shows, and it lists every event, source and word of a fork."""

import msgspec
from tests.docs.conftest import ROOT, Person

from dayfly.plan.reasons import Reason
from dayfly.spec.lifecycle import PRE_STOP_TRIES, LifecycleEvent
from dayfly.spec.steps import value_from

PAGE = ROOT / "docs" / "guides/hooks.md"


def test_hooks_page_shows_the_real_output(person: Person):
    found = person.follow(PAGE)
    assert not found, "\n".join(found)


def test_every_hook_event_and_source_is_documented():
    page = PAGE.read_text()
    assert all(f"| `{event}` |" in page for event in LifecycleEvent)
    assert all(f"| `valueFrom.{field.encode_name}:" in page for field in msgspec.structs.fields(value_from.HookSource))
    assert all(f"| `{{{{.{word}}}}}` |" in page for word in value_from.FORK_FIELDS)
    assert f"skipped after {PRE_STOP_TRIES} attempts" in page


def test_hooks_page_names_the_reasons_of_hooks():
    page = PAGE.read_text()
    ours = (Reason.FORK_WITHOUT_SERVICE, Reason.FORK_WITHOUT_PORT, Reason.HOOK_FAILED, Reason.RESOURCE_FAILED)
    assert all(f"`{reason}`" in page for reason in (*ours, Reason.CLEANUP_STUCK))
