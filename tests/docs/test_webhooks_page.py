"""The guide for webhooks: its commands print the shown output, and it has every field and reason."""

import re

import msgspec
from tests.docs.conftest import ROOT, Person
from tests.webhook.webhook_sender import unit

from dayfly.execute.webhook.exit_codes import ExitCode
from dayfly.execute.webhook.read import explain_exit_code
from dayfly.spec.steps import webhook

PAGE = ROOT / "docs" / "guides/webhooks.md"


def test_webhooks_page_shows_the_real_output(person: Person):
    found = person.follow(PAGE)
    assert not found, "\n".join(found)


def test_every_webhook_field_is_documented():
    page = PAGE.read_text()
    told = {name for row in re.findall(r"^\| (`.*?) \|", page, re.MULTILINE) for name in re.findall(r"`([\w.]+)`", row)}
    below = {
        "expect": webhook.Expect,
        "poll": webhook.Poll,
        "find": webhook.Find,
        "tls": webhook.Tls,
        "timeouts": webhook.WebhookTimeouts,
    }
    fields = [field.encode_name for field in msgspec.structs.fields(webhook.Webhook)]
    wanted = {name for name in fields if name not in below}
    wanted |= {f"{name}.{each.encode_name}" for name in below for each in msgspec.structs.fields(below[name])}
    assert wanted - told == set()
    assert all(f"`{name}`" in page for name in webhook.BUILT_IN_VARIABLES)


def test_every_webhook_reason_is_documented():
    page = PAGE.read_text()
    some = unit("https://api.example/")
    given = {explain_exit_code(code, some)[0] for code in ExitCode} | {explain_exit_code(60, some)[0]}
    assert {reason for reason in given if f"`{reason}`" not in page} == {"Cancelled"}
