"""Logging in where something is odd: no key, none that is one, another server than ours, an address of this machine."""

from __future__ import annotations

import os
import signal

import pytest
from tests.cli.command import Cli, refused
from tests.cli.fake_server import Fake, serving


@pytest.mark.parametrize("by", ["Ctrl-C", "Ctrl-D"])
def test_login_interrupted_at_key_prompt_reports_nothing_done(cli: Cli, by: str):
    ours, theirs = os.openpty()
    # In a new session, so that it prompts on this terminal and not on that of the test run.
    process = cli.start("login", "http://127.0.0.1:1", stdin=theirs, start_new_session=True)
    os.close(theirs)
    assert process.stderr.read(3) == b"Key"
    if by == "Ctrl-C":
        process.send_signal(signal.SIGINT)
    else:
        os.write(ours, b"\x04")
    assert process.wait(30) == 128 + signal.SIGINT
    assert b"dayfly: interrupted; nothing was done" in process.stderr.read()
    os.close(ours)


def test_a_key_that_is_no_text_is_no_key(cli: Cli):
    done = cli("login", "http://127.0.0.1:1", stdin=b"\xff\xfe\n", PYTHONIOENCODING="utf-8:strict")
    refused(done, 5, "the key contains invalid characters")


def test_unreadable_ca_file_is_reported_by_name(cli: Cli):
    refused(cli("login", "https://127.0.0.1:1", "--ca", "none.pem"), 2, "none.pem: no such file or directory", "PEM")


@pytest.mark.parametrize("known", ["[]", "{", '{"work": 1}', '{"work": {"url": "https://x"}}'])
def test_a_file_of_servers_that_is_damaged_is_called_that(cli: Cli, known: str):
    cli.home.mkdir()
    file = cli.home / "servers"
    file.write_text(known)
    file.chmod(0o600)
    refused(cli("sandbox", "list", "--server", "work"), 1, f"{file} is damaged", "log in again with: dayfly login")


@pytest.mark.parametrize("says", [[], {}, {"orgs": [], "user": {}}, {"orgs": [{"name": "a"}]}, {"orgs": 1, "user": 2}])
def test_another_server_than_ours_is_called_that(cli: Cli, says: object):
    fake = Fake()
    fake.say("GET", "/api/v2/orgs", says)
    with serving(fake) as url:
        refused(cli("login", url, stdin="k"), 6, f"{url} is not Dayfly: it returns no organisation for this key")
    assert not (cli.home / "servers").exists()
