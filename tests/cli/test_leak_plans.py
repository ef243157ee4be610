"""Plans of leak checks with a real server: what they promise is what they delete, and each mistake names its remedy."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.cli.command import refused, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cli.command import Cli, Done

pytestmark = pytest.mark.slow

ROOT = {"name": "root", "valueFromSandbox": True, "required": True}
LIST = r"""
[ ! -e "$ROOT/fail" ] || { echo "access denied" >&2; exit 1; }
cd "$ROOT" && set -- item-*
[ -e "$1" ] || shift
for each; do printf '{"id": "%s", "name": "%s", "created": 1700000000}\n' "${each#item-}" "$each"; done
printf '{"complete": true, "count": %d}\n' $#
"""


def step(name: str, script: str) -> dict[str, Any]:
    return {"name": name, "script": f"#!/bin/sh\n{script}\n", "inputs": [ROOT]}


class Account:
    """A folder with an item for each resource, and a leak check for it."""

    def __init__(self, cli: Cli) -> None:
        self.cli = cli
        self.folder = cli.folder / "account"
        self.folder.mkdir()

    def publish(self, version: str = "1.0.0", **changes: Any) -> None:
        spec = {
            "create": [step("make", 'touch "$ROOT/item-$DAYFLY_RESOURCE_ID"')],
            "delete": [step("drop", '[ ! -e "$ROOT/stuck" ] && rm -f "$ROOT/item-$DAYFLY_RESOURCE_ID"')],
            "inventory": [step("list", LIST)],
        }
        self.apply({"kind": "ResourcePlugin", "name": f"item@{version}", "spec": {**spec, **changes}})

    def check(self, **changes: Any) -> None:
        spec = {"cluster": "local", "plugin": "item", "params": {"root": str(self.folder)}, "grace": "1s", **changes}
        self.apply({"kind": "LeakCheck", "name": "items", "spec": spec})

    def leave_orphan(self, name: str, version: str = "1.0.0") -> str:
        """Create a sandbox and abandon it. Return the name of its item."""
        before = self.names()
        resource = {"name": "it", "plugin": f"item@{version}", "params": {"root": str(self.folder)}}
        self.apply({"kind": "Sandbox", "name": name, "spec": {"cluster": "local", "resources": [resource]}}, "--wait")
        (item,) = self.names() - before
        done = self.cli("abandon", name, "--force", "--reason", "a test of plans")
        assert done.code == 0, done.err
        assert self.cli("wait", name, "--for", "deleted").code == 0
        return item

    def apply(self, document: dict[str, Any], *options: str) -> None:
        done = self.cli("apply", "-f", self.cli.write("document.json", json.dumps(document)), *options)
        assert done.code == 0, done.err

    def names(self) -> set[str]:
        return {each.name for each in self.folder.glob("item-*")}

    def sweep(self) -> dict[str, Any]:
        (check,) = json.loads(self.cli("leaks", "--sweep", "-o", "json").out)
        return check["status"]

    def plan(self, orphans: int) -> Done:
        """Write a plan as soon as two lists have that many orphans."""
        until(lambda: self.sweep()["counts"].get("orphan", 0) == orphans)
        done = self.cli("leaks", "--plan", "plan.json")
        assert done.code == 0, done.err
        return done

    def apply_plan(self) -> Done:
        return self.cli("leaks", "--apply", "plan.json")


@pytest.fixture
def account(served: Cli) -> Iterator[Account]:
    found = Account(served)
    found.publish()
    found.check()
    yield found
    assert served("leaks", "--delete-check", "items").code in (0, 3)


class TestPromise:
    def test_plan_deletes_exactly_what_it_lists(self, account):
        item = account.leave_orphan("a")
        assert "deletes 1 resource to plan.json" in account.plan(1).err
        [plan] = json.loads((account.cli.folder / "plan.json").read_text())["checks"]
        assert [each["name"] for each in plan["delete"]] == [item]
        done = account.apply_plan()
        assert (done.code, "deleted 1 resource" in done.err, account.names()) == (0, True, set())

    def test_plan_has_no_orphan_that_cannot_be_deleted(self, account):
        account.publish("1.1.0", delete=[])
        account.check(plugin="item@1.0.0")
        left, item = account.leave_orphan("a", "1.1.0"), account.leave_orphan("b")
        assert "deletes 1 resource to plan.json" in account.plan(2).err
        reasons = {each["name"]: each["reason"] for each in account.sweep()["findings"]}
        assert "no delete steps of item@1.1.0 can run without its sandbox: delete it by hand" in reasons[left]
        done = account.apply_plan()
        assert (done.code, account.names(), item) == (0, {left}, item)

    def test_plan_with_an_unusable_version_deletes_nothing(self, account):
        """The version was published after the check, so the check does not know yet that it has no delete steps."""
        account.publish("1.1.0", delete=[])
        items = {account.leave_orphan("a", "1.1.0"), account.leave_orphan("b")}
        account.plan(2)
        done = account.apply_plan()
        assert (done.code, account.names()) == (1, items)
        assert "nothing was deleted: the check has no delete steps of item@1.1.0; apply the check again" in done.err
        account.check(plugin="item@1.0.0")
        assert "deletes 1 resource to plan.json" in account.plan(2).err
        assert account.apply_plan().code == 0

    def test_plan_brings_the_steps_of_a_later_version(self, account):
        account.publish("1.1.0")
        account.leave_orphan("a", "1.1.0")
        account.plan(1)
        done = account.apply_plan()
        assert (done.code, account.names()) == (0, set()), done.err


class TestMistakes:
    """Each message names the file or check, the cause and the remedy, and nothing is deleted."""

    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            (None, "cannot read plan.json: No such file or directory"),
            ("not JSON", "plan.json is not a plan: Expecting value"),
            ("[]", "plan.json is not a plan of leak checks"),
            ('{"checks": [{"name": "items"}]}', "plan.json is not a plan of leak checks"),
        ],
    )
    def test_file_that_is_no_plan_is_refused(self, account, text, problem):
        if text is not None:
            account.cli.write("plan.json", text)
        refused(account.apply_plan(), 2, problem, "write one with: dayfly leaks --plan FILE")

    def test_folder_is_no_plan(self, account):
        refused(account.cli("leaks", "--apply", "account"), 2, "cannot read account: Is a directory", "--plan FILE")
        refused(account.cli("leaks", "--plan", "account"), 2, "cannot write account: Is a directory", "--plan FILE")

    def test_plan_of_an_unknown_check_names_the_similar_one(self, account):
        account.cli.write("plan.json", '{"checks": [{"name": "item", "plan": "x"}]}')
        words = 'plan.json has the plan of the leak check "item"', "nothing was deleted", 'did you mean "items"?'
        refused(account.apply_plan(), 3, *words, "see: dayfly leaks")

    @pytest.mark.parametrize("options", [["items"], ["--check"], ["-o", "json"]])
    def test_option_without_effect_is_refused(self, account, options):
        refused(account.cli("leaks", "--apply", "plan.json", *options), 2, "--apply cannot be used with")

    def test_edited_plan_is_refused(self, account):
        item, other = account.leave_orphan("a"), account.leave_orphan("b")
        account.plan(2)
        file: Path = account.cli.folder / "plan.json"
        plan = json.loads(file.read_text())
        plan["checks"][0]["delete"].pop()
        file.write_text(json.dumps(plan))
        refused(account.apply_plan(), 2, 'the resources of "items" were edited', "nothing was deleted", "write one")
        assert account.names() == {item, other}

    def test_plan_is_stale_after_another_orphan_and_after_its_use(self, account):
        account.leave_orphan("a")
        account.plan(1)
        account.leave_orphan("b")
        until(lambda: account.sweep()["counts"]["orphan"] == 2)
        stale = account.apply_plan()
        account.plan(2)
        used = account.apply_plan(), account.apply_plan()
        assert (used[0].code, account.names()) == (0, set())
        for done in (stale, used[1]):
            assert (done.code, done.out) == (1, "")
            assert 'Leak check "items": nothing was deleted: the orphans' in done.err
            assert "have changed since the plan was made" in done.err
            assert "dayfly leaks items --plan plan.json" in done.err

    def test_plan_of_other_params_is_refused(self, account):
        account.leave_orphan("a")
        account.plan(1)
        account.check(params={"root": f"{account.folder}/"})
        until(lambda: account.sweep()["counts"].get("orphan") == 1)
        done = account.apply_plan()
        assert (done.code, "the params or the delete steps have changed" in done.err) == (1, True)
        assert len(account.names()) == 1

    def test_list_that_fails_is_the_reason(self, account):
        account.leave_orphan("a")
        account.plan(1)
        (account.folder / "fail").touch()
        done = account.apply_plan()
        assert done.code == 1
        for words in ("nothing was deleted: there is no list", "access denied", "dayfly leaks items --plan plan.json"):
            assert words in done.err
        (account.folder / "fail").unlink()

    def test_failed_deletion_names_its_item(self, account):
        item = account.leave_orphan("a")
        account.plan(1)
        (account.folder / "stuck").touch()
        done = account.apply_plan()
        assert (done.code, account.names()) == (1, {item})
        for words in (f"deleted 0 resources; {item} is left", "its deletion has failed", "--plan plan.json"):
            assert words in done.err
        (account.folder / "stuck").unlink()

    def test_short_timeout_states_that_the_plan_goes_on(self, account):
        account.leave_orphan("a")
        account.plan(1)
        done = account.cli("leaks", "--apply", "plan.json", "--timeout", "0s")
        refused(done, 4, "may still apply the plan", "dayfly leaks items", "--timeout")
        until(lambda: account.names() == set())

    def test_key_of_a_viewer_is_refused(self, account):
        key = json.loads(account.cli("key", "create", "eve", "--role", "viewer", "-o", "json").out)["key"]
        account.cli.write("plan.json", '{"checks": [{"name": "items", "plan": "x"}]}')
        url = (account.cli.home / "url").read_text().strip()
        done = account.cli("leaks", "--apply", "plan.json", DAYFLY_URL=url, DAYFLY_API_KEY=key)
        refused(done, 5, "viewer")
        assert account.cli("key", "delete", key.split("_")[1]).code == 0
