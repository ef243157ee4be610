"""The page on lifecycle hooks: what it says to type is typed, and no field and no variable is missing."""

import re

import msgspec
import yaml
from tests.docs.conftest import ROOT, Person

from dayfly.compile import check_hook
from dayfly.operator.hooks import target_grants
from dayfly.plan.reasons import Reason
from dayfly.spec import documents, kinds, lifecycle_hook, plugin
from dayfly.spec.parsing import text
from dayfly.spec.steps import kube_object, object_kinds

PAGE = ROOT / "docs" / "guides/lifecycle-hooks.md"
OF_HOOKS = {
    *(Reason.DELETING, Reason.BLOCKED, Reason.KIND_NOT_SERVED, Reason.LEDGER_LOST, Reason.WAITING_FOR_OPERATOR),
    *(Reason.PLAN_LOST, Reason.REFUSED, Reason.HOOK_ACTIVE, Reason.TARGETS_NOT_GRANTED, Reason.UNSUPPORTED),
}


def test_lifecycle_hooks_page_shows_the_real_output(person: Person):
    found = person.follow(PAGE)
    assert not found, "\n".join(found)


def told_in(head: str) -> set[str]:
    """The names in the first column of the table with this head."""
    [table] = re.findall(rf"^\| {re.escape(head)} \|.*\n\|[-|]+\n((?:\|.*\n)+)", PAGE.read_text(), re.MULTILINE)
    return {name for row in table.splitlines() for name in re.findall(r"`([\w\[\].]+)", row.split("|")[1])}


def fields(struct: type[msgspec.Struct]) -> set[str]:
    return {field.encode_name for field in msgspec.structs.fields(struct)}


def test_every_hook_field_is_documented():
    assert told_in("field of `spec`") == fields(lifecycle_hook.LifecycleHookSpec)
    assert told_in("field of `selector`") == fields(lifecycle_hook.Selector)
    assert told_in("field of `started`, `stopped`") == fields(kube_object.ReadyRule)
    assert told_in("field of `hold`") == fields(lifecycle_hook.Hold)
    steps = told_in("field of a step")
    assert fields(lifecycle_hook.HookStep) - fields(plugin.Step) <= steps
    assert {f"inputs[].{name}" for name in fields(lifecycle_hook.HookInput) - fields(plugin.Input)} <= steps


def test_every_hook_variable_is_documented():
    [shown] = re.findall(r"<<'END'\n(.*?)END\n", PAGE.read_text(), re.DOTALL)
    hook = documents.load(text.parse_one(shown, file="page"))
    assert isinstance(hook, lifecycle_hook.LifecycleHook)
    given = check_hook(hook).pre_stop[0].exec
    assert given is not None
    assert [name for name in given.env if f"`{name}`" not in PAGE.read_text()] == []
    assert f"{lifecycle_hook.FINALIZER_PREFIX}NAME" in PAGE.read_text()


def test_every_hook_status_field_is_documented():
    told = told_in("field of `status`")
    assert fields(kinds.LifecycleHookStatus) - told == {"observedGeneration", "conditions"}
    assert told <= fields(kinds.LifecycleHookStatus)


def test_every_hook_reason_is_documented():
    assert OF_HOOKS <= told_in("reason") <= set(Reason)


def test_shown_target_grant_equals_the_printed_command():
    [shown] = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    role = yaml.safe_load(shown)
    line = target_grants.grant_command("machines.cluster.example.org")
    assert f"create clusterrole {role['metadata']['name']} " in line
    [(key, value)] = role["metadata"]["labels"].items()
    assert line.endswith(f" {key}={value}")
    [rule] = role["rules"]
    assert (rule["resources"], rule["apiGroups"]) == (["machines"], ["cluster.example.org"])
    assert rule["verbs"] == target_grants.VERBS.split(",")


def test_every_refused_target_kind_is_documented():
    [last] = re.findall(r"## What hooks are not allowed for\n(.*)\Z", PAGE.read_text(), re.DOTALL)
    alone = {name for group, name in object_kinds.no_targets() if name in last.replace("Leases", "Lease")}
    assert {"Secret", "Pod", "Event", "Endpoints", "EndpointSlice", "Lease", "ControllerRevision"} <= alone
    assert all(f"`{name}`" in last for name in lifecycle_hook.OWN_NAMESPACES)
