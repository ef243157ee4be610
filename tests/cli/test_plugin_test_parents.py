"""`dayfly plugin test` of plugins with shared parents, whose files are given, too."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.cli.command import refused
from tests.testing.faulty_plugins import step

from dayfly.client.errors import Exit

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.command import Cli, Done

ROOT = {"name": "root", "valueFromSandbox": True, "required": True}
SERVER = {"name": "server", "valueFromParent": {"step": "start", "output": "path"}}
START = 'echo start >>"$ROOT/journal"; mkdir -p "$ROOT/$DAYFLY_RESOURCE_ID"; printf %s "$ROOT/$DAYFLY_RESOURCE_ID" >/tmp/path'
STOP = (
    'rmdir "$ROOT/$DAYFLY_RESOURCE_ID" 2>/dev/null || [ ! -e "$ROOT/$DAYFLY_RESOURCE_ID" ]; echo stop >>"$ROOT/journal"'
)
LIST = r"""
find "$ROOT" -mindepth 2 -name "${DAYFLY_RESOURCE_ID:-*}" -printf '{"id": "%f", "name": "%f"}\n' >"$HOME/found" 2>/dev/null
cat "$HOME/found"; echo "{\"complete\": true, \"count\": $(wc -l <"$HOME/found")}"
"""


def parent(start: str = START, stop: str = STOP) -> dict[str, Any]:
    return {
        "create": [step("start", start, inputs=[ROOT], outputs=[{"name": "path", "valueFromPath": "/tmp/path"}])],
        "delete": [step("stop", stop, inputs=[ROOT])],
    }


def child(remove: str = 'rm -rf "$SERVER/$DAYFLY_RESOURCE_ID"', **more: Any) -> dict[str, Any]:
    return {
        "parent": {"plugin": "server@1.0.0", "params": {"root": {"valueFromParam": "root"}}, "capacity": 1, **more},
        "create": [step("make", 'mkdir "$SERVER/$DAYFLY_RESOURCE_ID"', inputs=[SERVER, {**ROOT, "test": "fixed"}])],
        "delete": [step("remove", remove, inputs=[SERVER])],
        "inventory": [step("list", LIST, inputs=[ROOT])],
    }


def write(folder: Path, **specs: dict[str, Any]) -> list[str]:
    """Write plugins by their names. Return the options for them."""
    for name, spec in specs.items():
        (folder / f"{name}.json").write_text(json.dumps({"name": f"{name}@1.0.0", "spec": spec}))
    return [word for name in specs for word in ("-f", f"{name}.json")]


def run_test(cli: Cli, *more: str, **specs: dict[str, Any]) -> Done:
    world = cli.folder / "world"
    world.mkdir()
    return cli("plugin", "test", *write(cli.folder, **specs), "-p", f"root={world}", "--timeout", "50s", *more)


def journal(cli: Cli) -> list[str]:
    return (cli.folder / "world" / "journal").read_text().split()


@pytest.mark.slow
def test_all_scenarios_share_a_parent_that_is_deleted_last(cli: Cli):
    done = run_test(cli, "--skip", "middle", "-j", "3", child=child(linger="1h"), server=parent())
    assert (done.code, "no findings" in done.err) == (0, True), done
    assert journal(cli) == ["start", "stop"]
    assert [each.name for each in (cli.folder / "world").iterdir()] == ["journal"]


def test_thing_left_in_the_parent_is_found(cli: Cli):
    done = run_test(
        cli, "--only", "none", child=child("true"), server=parent(stop='rm -rf "$ROOT/$DAYFLY_RESOURCE_ID"')
    )
    assert done.code == 1, done
    assert "after the deletion there is still" in done.out
    assert "not gone" not in done.err
    assert [each.name for each in (cli.folder / "world").iterdir()] == ["journal"]


@pytest.mark.slow
def test_parent_that_cannot_be_deleted_is_reported(cli: Cli):
    done = run_test(cli, "--only", "none", "--timeout", "20s", child=child(), server=parent(stop="exit 1"))
    assert "the shared parent of child@1.0.0 is not gone after 20 s; it may be left over" in done.err


def test_parent_that_fails_is_named_with_its_reason(cli: Cli):
    done = run_test(cli, child=child(), server=parent("exit 3"))
    assert done.code == Exit.FAILED
    assert "the shared parent of child@1.0.0 cannot be created" in done.err
    assert "exit code 3" in done.err
    assert "stop" in journal(cli)


@pytest.mark.parametrize(
    ("specs", "message"),
    [
        ({"child": child()}, "child@1.0.0 has the shared parent server@1.0.0, whose file is not given"),
        ({"server": parent(), "other": parent()}, "2 are not the parent of another one"),
        ({"child": child(), "other": parent()}, "2 are not the parent of another one"),
    ],
)
def test_files_that_do_not_fit_are_refused(cli: Cli, specs: dict[str, Any], message: str):
    refused(cli("plugin", "test", *write(cli.folder, **specs)), Exit.USAGE, message)


def test_plugin_with_a_parent_is_refused_in_a_cluster(cli: Cli):
    given = [*write(cli.folder, child=child(), server=parent()), "-p", "root=/"]
    refused(cli("plugin", "test", *given, "--context", "none"), Exit.USAGE, "a test in a cluster cannot create it")
