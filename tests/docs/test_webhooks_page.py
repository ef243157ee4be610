"""The page on webhooks: what it says to type is typed, and no field or reason is missing."""

import re

import msgspec

from dayfly.execute.webhook.exit_codes import ExitCode
from dayfly.execute.webhook.read import meaning
from dayfly.spec.steps import webhook
from docs.conftest import ROOT, Person
from webhook.sending import unit

PAGE = ROOT / "docs" / "webhooks.md"


def test_what_the_page_shows_is_what_one_gets(person: Person):
    found = person.follow(PAGE)
    assert not found, "\n".join(found)


def test_every_field_is_told():
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


def test_every_reason_is_told():
    page = PAGE.read_text()
    some = unit("https://api.example/")
    given = {meaning(code, some)[0] for code in ExitCode} | {meaning(60, some)[0]}
    assert {reason for reason in given if f"`{reason}`" not in page} == {"Cancelled"}
