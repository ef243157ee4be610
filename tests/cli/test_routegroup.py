"""Route groups on the command line, against the real server; and lives that are extended."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.cli.command import Cli, refused, until

if TYPE_CHECKING:
    from pathlib import Path

ROUTED = "no data plane routes requests by their key: they reach the baselines"


def group(journal: Path, *, name: str = "pay", more: str = "", pre_stop: str = "", value: str = "pay*") -> str:
    hooks = "".join(
        f"    {event}:\n    - name: {event.lower()}\n      script: |\n        #!/bin/sh\n"
        f"        {pre_stop if event == 'preStop' else ':'}\n"
        f'        echo "{event} $DAYFLY_ROUTE_GROUP_NAME" >> {journal}\n'
        for event in ("preStart", "postStart", "preStop", "postStop")
    )
    return f"""\
name: {name}
spec:
  cluster: local
  match: {{label: {{key: team, value: "{value}"}}}}
  endpoints: [{{name: web, target: "http://shop.default.svc:80"}}]
{more}  hooks:
{hooks}"""


def bare(name: str, *, more: str = "") -> str:
    return f"name: {name}\nspec:\n  cluster: local\n  labels: {{team: payments}}\n{more}"


def test_from_a_folder_to_ready_to_gone_with_all_four_hooks(served: Cli, journal: Path):
    served.write("a-group.yaml", group(journal))
    served.write("b-sandbox.yaml", bare("demo"))
    done = served("apply", "-f", ".")
    assert done.code == 0, done.err
    assert 'Created route group "pay" (routing key: ' in done.err
    assert done.err.splitlines()[-1] == 'Route group "pay" is ready.'
    assert journal.read_text().splitlines() == ["preStart pay", "postStart pay"]

    assert served("apply", "-f", "a-group.yaml").err.startswith('Unchanged: route group "pay"')
    facts = dict(line.split(":", 1) for line in served("rg", "get", "pay").out.splitlines() if ":" in line)
    assert facts["Sandboxes"].strip() == "demo"
    assert (facts["Phase"].strip(), facts["Reason"].strip()) == ("Ready", "Unsupported")
    assert facts["Message"].strip() == (
        f"1 sandbox matches: demo. Not supported here: spec.match and spec.endpoints[0] ({ROUTED})."
    )
    (row,) = served("routegroup", "list").out.splitlines()[1:]
    assert row.split()[0] == "pay"
    assert "demo" in row
    (listed,) = json.loads(served("get", "routegroups", "-o", "json").out)
    assert (listed["matchedSandboxes"], listed["phase"]) == (["demo"], "Ready")
    assert served("get", "rg/pay").out.startswith("Name:          pay\n")
    assert ROUTED in served("why", "rg/pay").out
    assert served("logs", "routegroup/pay", "prestart").code == 0

    done = served("rg", "delete", "-f", "a-group.yaml")
    assert done.code == 0, done.err
    assert done.err.splitlines()[-1] == 'Route group "pay" is gone.'
    assert journal.read_text().splitlines()[2:] == ["preStop pay", "postStop pay"]
    assert "Phase:         Ended" in served("rg", "get", "pay").out
    refused(served("routegroup", "get", "other"), 3, 'no route group "other"', "dayfly routegroup list")
    assert served("sandbox", "get", "demo").code == 0


def test_stuck_group_cleanup_can_be_retried_and_abandoned(served: Cli, journal: Path):
    text = (
        group(journal)
        .replace("postStop $", "postStop $X")
        .replace('        echo "postStop', '        exit 7\n        echo "postStop')
    )
    served.write("g.yaml", text)
    assert served("rg", "apply", "-f", "g.yaml").code == 0
    assert served("rg", "delete", "pay", "--wait=false").code == 0
    until(lambda: "poststop: WaitingToRetry" in served("why", "routegroup/pay").out)
    why = served("why", "routegroup/pay").out
    assert why.startswith("routegroup/pay: ")
    assert "`dayfly retry routegroup/pay`" in why
    assert served("retry", "routegroup/pay", "poststop").code == 0
    done = served("abandon", "rg/pay", "--reason", "a trial")
    assert done.code == 0, done.err
    until(lambda: "Phase:         Ended" in served("rg", "get", "pay").out)


def test_group_errors_name_file_and_line(served: Cli, journal: Path):
    served.write("g.yaml", group(journal, value="[pay"))
    done = served("rg", "apply", "-f", "g.yaml")
    assert done.code == 2
    assert "g.yaml:4:" in done.err
    assert 'spec.match.label.value: "[pay" is not a pattern' in done.err
    served.write("s.yaml", bare("demo"))
    refused(served("rg", "apply", "-f", "s.yaml"), 2, "is a sandbox, not a route group; apply it with: dayfly apply -f")


def test_a_plan_and_a_manifest_need_no_server(cli: Cli, journal: Path):
    cli.write("g.yaml", group(journal))
    plan = cli("plan", "-f", "g.yaml").out
    assert plan.startswith('Route group "pay" in cluster "local"\n')
    assert [line for line in plan.splitlines() if line.startswith(("pre", "post", "delete"))] == [
        "preStart, wave 1",
        "postStart, wave 1",
        "delete, stage 1: preStop",
        "delete, stage 2: stop",
        "delete, stage 3: postStop",
    ]
    manifest = cli("manifest", "-f", "g.yaml", "-o", "json").out
    (item,) = json.loads(manifest)["items"]
    assert (item["kind"], item["metadata"], item["spec"]["match"]["label"]["value"]) == (
        "RouteGroup",
        {"name": "pay"},
        "pay*",
    )


def test_a_life_is_extended(served: Cli, journal: Path):
    served.write("s.yaml", bare("demo", more="  ttl: {duration: 10m}\n"))
    served.write("g.yaml", group(journal, more="  ttl: {duration: 10m}\n"))
    assert served("apply", "-f", ".").code == 0
    done = served("sandbox", "extend", "demo", "--for", "2h")
    assert (done.code, done.out) == (0, "")
    (said,) = done.err.splitlines()
    end = json.loads(served("sb", "get", "demo", "-o", "json").out)["status"]["scheduledDeleteTime"]
    assert said == f'Sandbox "demo" expires at {end}.'
    unchanged = f'Sandbox "demo" already expires at {end}, which is later; it is unchanged.\n'
    assert served("sandbox", "extend", "demo", "--for", "1m").err == unchanged  # never cut short
    refused(served("sandbox", "extend", "demo", "--for", "2"), 2, "'2' has no unit", "like 2h")
    assert "2031-01-01T" in served("sandbox", "extend", "demo", "--until", "2031-01-01T00:00:00Z").err
    refused(served("rg", "extend", "pay"), 1, "ends 10m after its last sandbox, and it has sandboxes")
    refused(served("sandbox", "extend", "other"), 3, 'no sandbox "other"')
    refused(served("sandbox", "extend", "demo", "--for", "1h", "--until", "x"), 2, "give either --for or --until")
    refused(served("sandbox", "extend", "demo", "--until", "yesterday"), 2, "must be a time with its zone")
    served.write("s2.yaml", bare("other"))
    assert served("sandbox", "apply", "-f", "s2.yaml").code == 0
    refused(served("sandbox", "extend", "other"), 1, "has no time to live: it lives until it is deleted")


def test_names_are_completed(served: Cli, journal: Path):
    served.write("g.yaml", group(journal))
    assert served("rg", "apply", "-f", "g.yaml").code == 0

    def offered(words: str, number: int) -> list[str]:
        more = {"COMP_WORDS": words, "COMP_CWORD": str(number), "_DAYFLY_COMPLETE": "bash_complete"}
        return [line.partition(",")[2] for line in served(**more).out.splitlines()]

    assert offered("dayfly rg get p", 3) == ["pay"]
    assert offered("dayfly why r", 2) == ["routegroup/pay"]
    assert offered("dayfly get routegroups p", 3) == ["pay"]
    assert "extend" in offered("dayfly sandbox e", 2)
