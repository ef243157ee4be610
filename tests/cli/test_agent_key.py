"""`dayfly key create --role agent`: the limits of the key hold for the command line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.cli import sample_specs
from tests.cli.command import Cli, refused

if TYPE_CHECKING:
    from pathlib import Path

LIMITS = ("--role", "agent", "--owner", "ada", "--plugin", "db", "--budget", "5")


def test_agent_key_has_the_limits_of_its_options(served: Cli, journal: Path):
    served.write("p.yaml", sample_specs.plugin(journal))
    assert served("apply", "-f", "p.yaml").code == 0
    done = served("key", "create", "bot", *LIMITS, "--param", "db.size=s*", "--param", "db.size=m", "-o", "json")
    made = json.loads(done.out)
    assert made["limits"] == {
        "owner": "ada",
        "plugins": [{"plugin": "db", "params": {"size": ["s*", "m"]}}],
        "maxSandboxes": 3,
        "maxTtl": "8h",
        "budgetHours": 5,
    }
    assert " agent " in served("key", "list").out
    agent = {"DAYFLY_URL": (served.home / "url").read_text().strip(), "DAYFLY_API_KEY": made["key"]}
    assert served("get", "-o", "name", **agent).out == ""
    served.write("s.yaml", sample_specs.sandbox("demo"))
    refused(served("apply", "-f", "s.yaml", **agent), 5, "outside the scope of your key (name:k")
    refused(served("key", "list", **agent), 5, "needs the role admin, and your key has the role agent")
    refused(served("pool", "list", **agent), 5, "not for keys for agents")


def test_key_create_refuses_incomplete_limits(served: Cli):
    before = served("key", "list").out
    refused(served("key", "create", "bot", "--role", "agent"), 2, "needs --owner, --plugin and --budget")
    refused(served("key", "create", "bot", "--expires", "9999d"), 2, "--expires: must be a whole number of seconds")
    refused(served("key", "create", "bot", "--owner", "ada"), 2, "limits are only for --role agent")
    refused(served("key", "create", "bot", *LIMITS, "--budget", "0"), 2, "--budget: must be a whole number from 1 to")
    refused(served("key", "create", "bot", *LIMITS, "--plugin", "db@v1"), 2, '"v1" matches no version; write a number')
    refused(served("key", "create", "bot", *LIMITS, "--plugin", "db@"), 2, "--plugin: ")
    refused(served("key", "create", "bot", *LIMITS, "--param", "size=s"), 2, "write PLUGIN.PARAM=PATTERN")
    refused(served("key", "create", "bot", *LIMITS, "--param", "other.size=s"), 2, "write PLUGIN.PARAM=PATTERN")
    refused(served("key", "create", "bot", *LIMITS, "--max-ttl", "1y"), 2, '--max-ttl: "1y" is not a time to live')
    assert served("key", "list").out == before
