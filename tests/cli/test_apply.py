"""Apply, get, list, delete against the real server, and what they say when something is wrong."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

import pytest
import yaml
from tests.cli import sample_specs
from tests.cli.command import Cli, refused, until

if TYPE_CHECKING:
    from pathlib import Path


def test_from_a_folder_to_ready_to_gone(served: Cli, journal: Path):
    served.write("b-plugin.yaml", sample_specs.plugin(journal))
    served.write("a-sandbox.yaml", sample_specs.sandbox())
    served.write("notes.txt", "no wish")

    done = served("apply", "-f", ".")
    assert done.code == 0, done.err
    assert done.out == ""
    first, second, *progress, last = done.err.splitlines()
    assert first == 'Created resource plugin "notes@1.0.0".'
    assert second.startswith('Created sandbox "demo" (routing key: ')
    assert last == 'Sandbox "demo" is ready.'
    assert [line.partition(" after ")[0] for line in progress if "succeeded" in line] == [
        "demo: db/provision: succeeded",
        "demo: db/seed: succeeded",
    ]

    table = served("sandbox", "list").out.splitlines()
    assert table[0].split("   ")[0] == "NAME"
    assert table[1].split()[0] == "demo"
    assert table[1].endswith("Ready")
    plugins = served("plugin", "list").out.splitlines()
    assert [line.split()[:2] for line in plugins] == [["NAME", "VERSION"], ["notes", "1.0.0"]]
    assert plugins[1].endswith("1 resource")
    assert "Phase:         Ready" in served("sb", "get", "demo").out
    assert "demo" in served("rp", "get", "notes").out

    done = served("sandbox", "delete", "demo")
    assert done.code == 0, done.err
    assert done.err.splitlines()[-1] == 'Sandbox "demo" is gone.'
    assert journal.read_text().split() == ["provision", "seed", "drop"]
    refused(served("env", "demo"), 3, 'no sandbox "demo"', "it has ended; see: dayfly get sandbox demo")


def test_applying_again_changes_nothing(served: Cli, journal: Path):
    plugin, sandbox = (
        served.write("p.yaml", sample_specs.plugin(journal)),
        served.write("s.yaml", sample_specs.sandbox()),
    )
    assert served("apply", "-f", plugin, "-f", sandbox).code == 0
    done = served("apply", "-f", sandbox, "-f", plugin)
    assert done.code == 0
    assert 'Resource plugin "notes@1.0.0" is unchanged.' in done.err
    assert 'Unchanged: sandbox "demo"' in done.err
    assert journal.read_text().split() == ["provision", "seed"]


def test_a_published_version_is_never_changed(served: Cli, journal: Path):
    file = served.write("p.yaml", sample_specs.plugin(journal))
    assert served("plugin", "apply", "-f", file).code == 0
    served.write("p.yaml", sample_specs.plugin(journal, create="true"))
    refused(served("plugin", "apply", "-f", file), 1, 'version "1.0.0" already exists', "notes@1.0.1")
    served.write("bare.yaml", sample_specs.plugin(journal, name="notes"))
    assert served("plugin", "apply", "-f", "bare.yaml").code == 0
    served.write("bare.yaml", sample_specs.plugin(journal, name="notes", create="true"))
    refused(served("plugin", "apply", "-f", "bare.yaml"), 1, "default version (0.0.0) already exists", "notes@0.0.1")


def test_readme_next_to_plugin_is_applied_and_can_be_changed(served: Cli, journal: Path):
    folder = served.folder / "notes"
    folder.mkdir()
    served.write("notes/plugin.yaml", sample_specs.plugin(journal))
    apply = ("plugin", "apply", "-f", "notes/plugin.yaml")
    assert "Created" in served(*apply).err
    refused(served("plugin", "get", "notes", "--readme"), 3, "has no README", "README.md next to its plugin.yaml")
    served.write("notes/README.md", "# Notes\n\n\x1b[2Jfor all\n")
    assert served("apply", "-f", "notes").err == 'Changed the README of resource plugin "notes@1.0.0".\n'
    assert served(*apply).err == 'Resource plugin "notes@1.0.0" is unchanged.\n'
    said = served("plugin", "get", "notes", "--readme").out
    assert (said.startswith("# Notes\n\n"), "\x1b" in said) == (True, False)
    assert "see: dayfly plugin get notes --readme" in served("plugin", "get", "notes").out
    assert json.loads(served("plugin", "get", "notes", "-o", "json").out)["readme"] == "# Notes\n\n\x1b[2Jfor all\n"
    (folder / "README.md").unlink()
    assert "unchanged" in served(*apply).err, "a missing README changes nothing"
    assert served("plugin", "get", "notes", "--readme").out == said
    served.write("notes/plugin.yaml", sample_specs.plugin(journal) + "readme: ''\n")
    assert "Changed the README" in served(*apply).err


def test_readme_is_read_only_from_folder_of_a_single_plugin(cli: Cli, journal: Path):
    def told(file: str) -> object:
        metadata = json.loads(cli("manifest", "-f", file, "-o", "json").out)["items"][0]["metadata"]
        return metadata.get("annotations", {}).get("dayfly.dev/readme")

    cli.write("README.md", "# The project")
    for name in ("all.yaml", "plugin.yaml"):
        cli.write(name, sample_specs.plugin(journal))
    assert (told("all.yaml"), told("plugin.yaml")) == (None, "# The project")
    cli.write("plugin.yaml", sample_specs.plugin(journal) + "readme: of its own\n")
    assert told("plugin.yaml") == "of its own"
    inside = cli.folder / "linked"
    inside.mkdir()
    cli.write("linked/plugin.yaml", sample_specs.plugin(journal))
    (inside / "README.md").symlink_to(cli.folder / "README.md")
    assert told("linked/plugin.yaml") is None, "a link could lead to anything"


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"x" * 65537, "at most 65536"), (b"\xff", "is not UTF-8 at byte 0"), (b"a\0", "a NUL character")],
    ids=("long", "bytes", "nul"),
)
def test_unreadable_readme_is_refused_before_any_request(cli: Cli, journal: Path, content, said):
    cli.write("plugin.yaml", sample_specs.plugin(journal))
    (cli.folder / "README.md").write_bytes(content)
    refused(cli("apply", "-f", "plugin.yaml"), 2, "README.md: ", said)


def test_a_failed_step_fails_the_wait_and_shows_its_log(served: Cli, journal: Path):
    served.write("p.yaml", sample_specs.plugin(journal, create="echo disk is full >&2; exit 3"))
    served.write("s.yaml", sample_specs.sandbox())
    done = served("apply", "-f", ".", "-o", "json")
    assert done.code == 1
    assert "db/provision | disk is full" in done.err
    last = done.err.splitlines()[-1]
    assert last.startswith("dayfly: demo: ResourceFailed: db/provision")
    assert last.endswith("read: dayfly logs demo db provision")
    shown = json.loads(done.out)
    assert [each["name"] for each in shown] == ["notes@1.0.0", "demo"]
    assert shown[1]["status"]["reason"] == "ResourceFailed"
    assert "failed" in served("status").out
    tree = served("why", "demo").out
    assert "db/provision" in tree
    assert "to do: " in tree
    assert json.loads(served("why", "demo", "-o", "json").out)["reason"] == "ResourceFailed"


def test_step_without_output_is_not_referred_to_its_log(served: Cli):
    step = "{name: make, script: '#!/bin/sh', outputs: [{name: x, valueFromPath: /tmp/missing}]}"
    resource = f"{{name: db, spec: {{create: [{step}]}}}}"
    served.write("s.yaml", f"name: mute\nspec: {{cluster: local, resources: [{resource}]}}\n")
    said = served("apply", "-f", "s.yaml").err.splitlines()[-1]
    assert "left no file /tmp/missing" in said
    assert said.endswith("; it printed nothing")
    told = served("why", "mute").out
    assert "to do: see its message (it printed nothing), fix the plugin" in told, told


def test_delete_step_that_was_not_due_is_not_shown_as_done(served: Cli):
    script = '"#!/no/such\\n"'
    steps = f"create: [{{name: make, script: {script}}}], delete: [{{name: drop, script: {script}}}]"
    resource = f"{{name: r, spec: {{{steps}}}}}"
    served.write("typo.yaml", f"name: typo\nspec: {{cluster: local, resources: [{resource}]}}\n")
    assert "NotExecutable" in served("apply", "-f", "typo.yaml").err
    deleted = served("sandbox", "delete", "typo")
    assert 'Sandbox "typo" is gone' in deleted.out + deleted.err
    assert "succeeded" not in deleted.err


def test_not_waiting_and_not_waiting_long_enough(served: Cli, journal: Path):
    served.write("p.yaml", sample_specs.plugin(journal, create="sleep 30"))
    served.write("s.yaml", sample_specs.sandbox())
    done = served("apply", "-f", ".", "--wait=false")
    assert done.code == 0
    assert "ready" not in done.err
    done = served("sandbox", "apply", "-f", "s.yaml", "--timeout", "1s", "-o", "json")
    assert done.code == 4
    last = done.err.splitlines()[-1]
    assert last.startswith(
        "dayfly: demo is not ready after 1 s, and is still being worked on: ResourcesPending: db/provision: "
    )
    assert last.endswith("; see: dayfly why demo")
    assert json.loads(done.out)["name"] == "demo"
    done = served("sandbox", "delete", "demo", "--wait=false")
    assert done.code == 0
    assert "gone" not in done.err
    until(lambda: served.sandboxes() == [])


def test_wait_for_sandbox_deleted_by_another_command_fails(served: Cli, journal: Path):
    served.write("p.yaml", sample_specs.plugin(journal, create="sleep 60"))
    file = served.write("s.yaml", sample_specs.sandbox())
    assert served("plugin", "apply", "-f", "p.yaml").code == 0
    process = served.start("sandbox", "apply", "-f", file, "-o", "json")
    until(journal.exists)
    assert served("sandbox", "delete", "demo").code == 0
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1, err
    assert json.loads(out)["name"] == "demo"
    assert b"is being deleted" in err


def test_delete_of_several_continues_past_missing_and_stuck(served: Cli, journal: Path):
    gate = journal.with_name("gate")
    served.write("p.yaml", sample_specs.plugin(journal, delete=sample_specs.waiting(gate)))
    stuck, other = sample_specs.sandbox("stuck"), "name: other\nspec: {cluster: local}\n"
    served.write("s.yaml", f"{stuck}---\n{other}")
    assert served("apply", "-f", ".").code == 0
    served.write("d.yaml", f"name: never\nspec: {{cluster: local}}\n---\n{stuck}---\n{other}")
    done = served("sandbox", "delete", "-f", "d.yaml", "--timeout", "1s")
    assert done.code == 3, "that of the first which failed"
    assert 'dayfly: no sandbox "never"; see: dayfly sandbox list' in done.err
    assert "dayfly: stuck is still being deleted after 1 s" in done.err
    assert 'Sandbox "other" is gone.' in done.err
    assert served.sandboxes() == ["stuck"]
    gate.touch()
    until(lambda: served.sandboxes() == [])


def test_yaml_output_can_be_applied_again(served: Cli, journal: Path):
    text = sample_specs.plugin(journal).replace('"debian:12"', '"on"')
    file = served.write("p.yaml", text)
    shown = served("plugin", "apply", "-f", file, "-o", "yaml")
    assert shown.code == 0, shown.err
    assert "script: |" in shown.out
    assert yaml.safe_load(shown.out)["name"] == "notes@1.0.0"
    done = served("plugin", "apply", "-f", "-", stdin=shown.out)
    assert (done.code, done.err) == (0, 'Resource plugin "notes@1.0.0" is unchanged.\n')


@pytest.mark.slow
def test_a_plugin_in_use_stays(served: Cli, journal: Path):
    served.write("p.yaml", sample_specs.plugin(journal) + "---\n" + sample_specs.sandbox())
    assert served("apply", "-f", "p.yaml").code == 0
    refused(served("plugin", "delete", "notes"), 1, "notes@1.0.0 is still referenced by sandbox(es): demo")
    assert served("sandbox", "delete", "-f", served.write("s.yaml", "name: demo\nspec: {cluster: '@{x}'}\n")).code == 0
    served.write("q.yaml", sample_specs.plugin(journal, name="notes@2.0"))
    assert served("plugin", "apply", "-f", "q.yaml").code == 0
    assert (
        served("plugin", "delete", "notes").err == 'Deleted resource plugin "notes@2.0.0"; 1 other version remains.\n'
    )
    assert served("plugin", "delete", "notes@1").err == 'Deleted resource plugin "notes@1.0.0".\n'
    refused(served("plugin", "delete", "notes"), 3, "no published versions")
    assert served("plugin", "list").out == ""


def test_the_server_s_refusal_is_placed_in_the_file(served: Cli):
    file = served.write("s.yaml", "name: x\nspec:\n  cluster: mars\n")
    refused(served("apply", "-f", file), 2, "s.yaml:3:3: spec.cluster: ")
    file = served.write("t.yaml", sample_specs.sandbox(plugin="nowhere"))
    refused(served("apply", "-f", file), 2, "t.yaml:5:16: spec.resources[0].plugin: ")
    assert served.sandboxes() == []


def test_refusal_after_a_change_says_earlier_changes_remain(served: Cli):
    served.write("a.yaml", "name: demo\nspec: {cluster: local}\n")
    served.write("b.yaml", "name: other\nspec:\n  cluster: mars\n")
    done = served("apply", "-f", "a.yaml", "-f", "b.yaml")
    assert done.code == 1, "2 would be: no sandbox was changed"
    said, refusal = done.err.splitlines()
    assert said.startswith('Created sandbox "demo"')
    assert refusal.startswith("dayfly: b.yaml:3:3: spec.cluster: ")
    assert refusal.endswith("; the objects above were created or changed")
    assert served.sandboxes() == ["demo"]
    refused(served("apply", "-f", "b.yaml"), 2, "b.yaml:3:3: spec.cluster: ")


BAD = [
    ("name: x\nspec: {bogus: 1, cluster: local}\n", 'w.yaml:2:8: spec.bogus: unknown field "bogus"'),
    ("name: x\nspec: {cluster: '@{c}'}\n", "w.yaml:2:8: spec.cluster: unexpanded variable: c"),
    ("name: x\nspec:\n  create: [{name: a, script: 'echo'}]\n", "must begin with #!"),
    ("name: " + "x" * 64 + "\nspec: {cluster: local}\n", "64 characters"),
    ("name: z\u00fcrich\nspec: {cluster: local}\n", "z\u00fcrich"),
    ("name: x\nspec: {cluster: *c}\n", "w.yaml:2:17: spec.cluster: the alias *c has no anchor &c before it"),
    ("name: x\nspec: {cluster: @{c}}\n", 'w.yaml:2:17: "@" cannot begin a value in YAML; write it in quotes: "@{c}"'),
    ("name: [\n", "w.yaml:2:1: a value is missing"),
    ('{"name": "x"', "w.yaml:2:1: a comma or the closing '}'"),
]


def test_server_warnings_are_printed_with_file_and_line(served: Cli, journal: Path):
    served.write(
        "s.yaml", "name: demo\nspec:\n  cluster: local\n  hooks: {preStop: [{name: a, script: '#!/bin/sh'}]}\n"
    )
    for arguments in (("plan",), ("apply", "--wait=false")):
        done = served(*arguments, "-f", ".")
        assert done.code == 0, done.err
        (warning,) = (line for line in done.err.splitlines() if line.startswith("warning: "))
        assert "s.yaml:4:" in warning
        assert "spec.hooks.preStop: runs only after a fork has been started" in warning


def test_unknown_param_is_refused_before_the_sandbox_exists(served: Cli, journal: Path):
    served.write("p.yaml", sample_specs.plugin(journal))
    assert served("apply", "-f", "p.yaml").code == 0
    served.write("s.yaml", sample_specs.sandbox().replace("owner: me", "owner: me, ovner: you"))
    for verb in ("plan", "apply"):
        refused(served(verb, "-f", "s.yaml"), 2, "s.yaml:", 'reads it; did you mean "owner"?')
    assert served.sandboxes() == []


def test_ttl_may_be_only_a_duration(cli: Cli):
    cli.write("s.yaml", "name: demo\nspec: {cluster: local, ttl: 2h}\n")
    (item,) = yaml.safe_load(cli("manifest", "-f", "s.yaml").out)["items"]
    assert item["spec"]["ttl"] == {"duration": "2h", "offsetFrom": "createdAt"}
    cli.write("s.yaml", "name: demo\nspec: {cluster: local, ttl: soon}\n")
    refused(cli("manifest", "-f", "s.yaml"), 2, "s.yaml:2:", "spec.ttl.duration")


def test_variable_without_use_is_a_warning(cli: Cli):
    cli.write("s.yaml", "name: demo\nspec: {cluster: '@{where}'}\n")
    done = cli("manifest", "-f", "s.yaml", "--set", "where=local", "--set", "other=b")
    assert (done.code, done.err) == (0, "warning: --set other has no effect: no file contains @{other}\n")


def test_missing_file_suggests_its_other_ending(cli: Cli):
    cli.write("fail.yaml", "name: demo\nspec: {cluster: local}\n")
    refused(cli("apply", "-f", "fail.yml"), 2, "fail.yml: no such file or directory; did you mean fail.yaml?")
    refused(cli("apply", "-f", "https://files.example.com/a.yaml"), 2, "files are not downloaded: curl -fsS")
    cli.write("fail.yaml", "name: demo\nspec: {cluster: local, resource: []}\n")
    refused(cli("apply", "-f", "fail.yaml"), 2, 'unknown field "resource"; did you mean resources? known here: ')


@pytest.mark.parametrize(("text", "message"), BAD, ids=[message[:24] for _, message in BAD])
def test_bad_input_prints_one_located_line_without_server(cli: Cli, text: str, message: str):
    good = cli.write("good.yaml", "name: fine\nspec: {cluster: local}\n")
    refused(cli("apply", "-f", good, "-f", cli.write("w.yaml", text)), 2, message)


def test_input_that_is_no_text_or_too_large(cli: Cli):
    refused(cli("apply", "-f", "-", stdin=b"name: \xff\n"), 2, "-:1:7", "UTF-8")
    refused(cli("apply", "-f", "-", stdin="# " + "x" * (10 << 20)), 2, "the limit is 4194304")
    refused(cli("apply", "-f", "nowhere.yaml"), 2, "nowhere.yaml: no such file")
    refused(cli("apply", "-f", os.devnull), 2, "no document")
    (cli.folder / "empty").mkdir()
    refused(cli("apply", "-f", "empty"), 2, "no .yaml, .yml, .json file")


def test_one_thing_wished_for_twice(cli: Cli):
    cli.write("a.yaml", sample_specs.sandbox())
    cli.write("b.yaml", sample_specs.sandbox())
    refused(cli("apply", "-f", "."), 2, 'b.yaml:1:1: the sandbox "demo" is defined twice, also in a.yaml')


def test_wrong_kind_for_the_verb(cli: Cli, journal: Path):
    cli.write("p.yaml", sample_specs.plugin(journal))
    refused(cli("sandbox", "apply", "-f", "p.yaml"), 2, "p.yaml:1:1: is a plugin, not a sandbox")
    refused(cli("sandbox", "delete", "-f", "p.yaml"), 2, "is a ResourcePlugin")


def test_embedded_files_come_from_the_folder_of_the_document(served: Cli, journal: Path):
    served.write("plugins/run.sh", f"#!/bin/sh\necho embedded >> {journal}\n")
    served.write("plugins/p.yaml", "name: e\nspec:\n  create:\n  - {name: a, script: '@{embed: ./run.sh}'}\n")
    served.write("s.yaml", sample_specs.sandbox(plugin="e").replace("params: {owner: me}", "params: {}"))
    done = served("apply", "-f", "plugins", "-f", "s.yaml")
    assert done.code == 0, done.err
    assert journal.read_text() == "embedded\n"


def test_baseline_is_forked_and_its_address_is_shown(served: Cli, journal: Path):
    page = served.folder / "page"
    page.mkdir()
    program = f"cd {page}; echo up with $DB_PATH; exec {sys.executable} -m http.server $PORT"
    served.write(
        "base.yaml", json.dumps({"kind": "Deployment", "name": "web", "command": ["sh", "-c", program], "port": 80})
    )
    assert 'Created baseline "default/web".' in served("apply", "-f", "base.yaml").err
    assert 'Unchanged: baseline "default/web".' in served("apply", "-f", "base.yaml").err
    served.write("p.yaml", sample_specs.plugin(journal))
    served.write("s.yaml", sample_specs.sandbox(more=FORK))
    done = served("apply", "-f", "p.yaml", "-f", "s.yaml")
    assert done.code == 0, done.err
    assert "demo: fork:default/web: running" in done.err
    assert "http://127.0.0.1:" in served("sandbox", "get", "demo").out
    assert served("logs", "demo", "web").out.startswith("up with /data/demo\n")
    assert served("sandbox", "delete", "demo").code == 0


FORK = """\
  forks:
  - forkOf: {kind: Deployment, namespace: default, name: web}
    customizations:
      env:
      - name: DB_PATH
        valueFrom: {resource: {name: db, outputKey: provision.path}}
  defaultRouteGroup:
    endpoints:
    - {name: site, target: "http://web.default.deploy:80"}
"""


def test_a_file_is_embedded_by_its_absolute_path(cli: Cli, tmp_path: Path):
    """Files below the folder of the document take priority: Signadot's client uses only those."""
    script = tmp_path / "elsewhere.sh"
    script.write_text("#!/bin/sh\necho elsewhere\n")
    cli.write("p.yaml", f"name: p\nspec: {{create: [{{name: a, script: '@{{embed: {script}}}'}}]}}\n")
    cli.write("s.yaml", "name: s\nspec: {cluster: local, resources: [{name: r, plugin: p}]}\n")
    plan = ("plan", "-f", ".", "-o", "json")
    assert cli(*plan).code == 0
    refused(cli(*plan[:2], "s.yaml"), 3, "in none of these files")
    script.unlink()
    refused(cli(*plan), 2, "p.yaml", "no such file")
    cli.write(f"./{script}", "#!/bin/sh\necho below\n")
    assert cli(*plan).code == 0


def test_errors_of_all_files_are_reported_together(cli: Cli):
    cli.write("a.yaml", "name: p_q\nspec: {create: [{name: a, script: echo}]}\n---\nname: s\nspec: {cluster: 5}\n")
    cli.write("b.yaml", "name: {\n")
    cli.write("c.yaml", "name: t\nspec: {cluster: local, ttl: {duration: '@{none}'}}\n")
    refused(cli("apply", "-f", "."), 2, "b.yaml:")  # what cannot be read is first
    (cli.folder / "b.yaml").unlink()
    done = cli("apply", "-f", ".")
    places = [line.split(": ")[1:3] for line in done.err.splitlines()]
    assert (done.code, places) == (
        2,
        [
            ["a.yaml:1:1", "name"],
            ["a.yaml:2:27", "spec.create[0].script"],
            ["a.yaml:5:8", "spec.cluster"],
            ["c.yaml:2:30", "spec.ttl.duration"],
        ],
    )
    steps = "".join(f"  - {{name: s{number}, script: echo}}\n" for number in range(30))
    cli.write("many.yaml", f"name: p\nspec:\n  create:\n{steps}")
    lines = cli("plan", "-f", "many.yaml").err.splitlines()
    assert (len(lines), lines[-1]) == (21, "dayfly: and 10 more like these")


def test_all_server_refusals_are_reported_with_file_and_line(served: Cli):
    served.write(
        "s.yaml",
        "name: s\nspec:\n  cluster: local\n  resources:\n  - {name: a, plugin: none}\n  - {name: b, plugin: neither}\n",
    )
    done = served("apply", "-f", "s.yaml")
    lines = [line.partition(": no plugin")[0] for line in done.err.splitlines()]
    assert (done.code, lines) == (
        2,
        ["dayfly: s.yaml:5:15: spec.resources[0].plugin", "dayfly: s.yaml:6:15: spec.resources[1].plugin"],
    )


def test_ready_sandbox_with_ignored_parts_is_listed_as_unsupported(served: Cli):
    served.write("s.yaml", "name: s\nspec: {cluster: local, middleware: [{name: m}]}\n")
    served.write("t.yaml", "name: t\nspec: {cluster: local}\n")
    assert served("apply", "-f", ".").code == 0
    rows = [line.split()[:3] for line in served("get").out.splitlines()[1:]]
    assert rows == [["s", "Ready", "Unsupported"], ["t", "Ready", "AllDesiredWorkloadsReady"]]
    listed = served("sandbox", "list").out.splitlines()[1:]
    assert [line.rpartition("  ")[2] for line in listed] == ["Ready (Unsupported)", "Ready"]
    assert "Reason:        Unsupported" in served("sandbox", "get", "s").out.splitlines()
