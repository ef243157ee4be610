"""Errors for unknown names: suggestions, and hints to ended sandboxes."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
from tests.cli import sample_specs
from tests.cli.command import Cli, refused, until

if TYPE_CHECKING:
    from pathlib import Path


def test_sandboxes_resources_plugins_and_versions(served: Cli, journal: Path):
    served.write("p.yaml", sample_specs.plugin(journal))
    served.write("s.yaml", sample_specs.sandbox().replace("cluster: local", "cluster: local\n  labels: {team: pay}"))
    assert served("apply", "-f", ".").code == 0
    for verb in ("why", "logs", "env", "retry", "sandbox get", "sandbox delete", "get sandbox"):
        refused(served(*verb.split(), "dmeo"), 3, 'no sandbox "dmeo"; did you mean "demo"? see: dayfly sandbox list')
    refused(served("get", "resource", "bd"), 3, 'no resource "bd"; did you mean "db"?')
    refused(served("plugin", "get", "ntes"), 3, '"ntes"', 'did you mean "notes"? see: dayfly plugin list')
    refused(served("plugin", "get", "notes@2.0.0"), 3, "2.0.0", "published: 1.0.0")
    refused(served("plugin", "delete", "ntes"), 3, 'did you mean "notes"?')
    served.write("t/s.yaml", sample_specs.sandbox("other", plugin="ntes"))
    refused(served("apply", "-f", "t"), 2, "s.yaml:5:16", "spec.resources[0].plugin", 'did you mean "notes"?')
    served.write("t/s.yaml", sample_specs.sandbox("other", plugin="notes@1.0.1"))
    refused(served("apply", "-f", "t"), 2, 'did you mean "notes@1.0.0"?')
    assert served("get", "-l", "team=pay").out.splitlines()[1].startswith("demo ")
    assert served("get", "resources", "-l", "team").out.splitlines()[1].startswith("db ")
    for selector in ("!team", "team=nope", "team==", "team!=pay"):
        assert served("get", "-l", selector).err == "No sandbox has matching labels; there is 1 without --label.\n"
    assert (
        served("get", "resources", "-l", "!team").err
        == "No resource has matching labels; there is 1 without --label.\n"
    )
    assert served("get", "routegroups", "-l", "team").err == "There are no route groups.\n"
    unmatched = served("sandbox", "list", "-l", "team!=pay").err
    assert unmatched == "No sandbox has matching labels; there is 1 without --label.\n"
    refused(served("get", "-l", "=x"), 2, "is not a label selector")
    refused(served("get", "sandbox", "demo", "-l", "team"), 2, "either a name or --label")


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("pool scale db 5", "apply -f FILE"),
        ("snadbox list", "sandbox"),
        ("sandbox extnd", "extend"),
        ("plugins", "plugin"),
        ("histroy", "history"),
    ],
)
def test_commands(cli: Cli, words: str, meant: str):
    refused(cli(*words.split()), 2, "id you mean", meant, "--help")


@pytest.mark.parametrize("word", ["ps", "ls", "show", "describe", "output", "ui", "test", "restart", "scale", "exec"])
def test_habits_of_other_tools_lead_to_a_command(cli: Cli, word: str):
    line = cli(word).err.partition("did you mean: ")[2].partition(";")[0]
    assert cli(*line.split()[1:3], "--help").code == 0 or cli(*line.split()[1:2], "--help").code == 0


@pytest.mark.parametrize("words", ["aply", "lst", "doun", "downs", "abandn", "sandbox delte", "pool drian"])
def test_short_words_and_verbs_that_destroy_are_not_guessed(cli: Cli, words: str):
    refused(cli(*words.split()), 2, f'no such command "{words.rsplit(maxsplit=1)[-1]}"; see: dayfly')


def test_a_command_like_none(cli: Cli):
    refused(
        cli("delete", "box"), 2, 'no such command "delete"; did you mean: dayfly sandbox delete; see: dayfly --help'
    )
    assert "apply -f" not in cli("sandbox", "create").err, "that is another's word"
    refused(
        cli("sandbox", "rm", "box"), 2, 'no such command "rm"; did you mean: dayfly sandbox delete; see: dayfly sandbox'
    )
    refused(cli("key", "remove", "x"), 2, "did you mean: dayfly key delete;")
    refused(cli("plugin", "zzzzzz"), 2, 'no such command "zzzzzz"; see: dayfly plugin --help')
    refused(cli("zzzzzz"), 2, 'no such command "zzzzzz"; see: dayfly --help')


def test_sandbox_with_expired_ttl_is_reported_as_ended(served: Cli, journal: Path):
    served.write("p.yaml", sample_specs.plugin(journal))
    served.write("s.yaml", sample_specs.sandbox(more="  ttl: {duration: 1d}\n"))
    assert served("apply", "-f", ".").code == 0
    shown = served("sandbox", "get", "demo").out
    assert "Expires: " in shown
    assert "Deleted at" not in shown
    assert served("sandbox", "delete", "demo").code == 0
    until(lambda: served.sandboxes() == [])
    shown = served("get", "sandbox", "demo").out
    assert served("sandbox", "get", "demo").out == shown
    assert "Phase:         Ended\n" in shown
    assert "Ended:         Deleted: deleted (by " in shown
    said = served("why", "demo").out
    assert re.match(r"sandbox demo: Cleaned: it has ended: deleted by .*; every delete step has succeeded", said)
    assert json.loads(served("why", "demo", "-o", "json").out)["reason"] == "Cleaned"
    refused(served("retry", "demo"), 3, 'no sandbox "demo": it has ended; see: dayfly get sandbox demo')
