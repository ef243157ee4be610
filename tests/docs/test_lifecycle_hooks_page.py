"""Lifecycle hooks: the guide's commands work, and the reference lists every field, variable, status and reason."""

import re

import msgspec
import pytest
import yaml
from tests.docs.conftest import ROOT, Person

from dayfly.compile import check_hook
from dayfly.operator.hooks import target_grants
from dayfly.plan.reasons import Reason
from dayfly.spec import documents, kinds, lifecycle, lifecycle_hook
from dayfly.spec.parsing import text
from dayfly.spec.scalars import jsonpath
from dayfly.spec.schema import reference
from dayfly.spec.steps import kube_object, object_kinds

GUIDE = ROOT / "docs" / "guides" / "lifecycle-hooks.md"
REFERENCE = (ROOT / "docs" / "reference" / "lifecycle-hooks.md").read_text()
FILES = (ROOT / "docs" / "reference" / "files.md").read_text()
OF_HOOKS = {
    *(Reason.DELETING, Reason.BLOCKED, Reason.KIND_NOT_SERVED, Reason.LEDGER_LOST, Reason.WAITING_FOR_OPERATOR),
    *(Reason.PLAN_LOST, Reason.REFUSED, Reason.HOOK_ACTIVE, Reason.TARGETS_NOT_GRANTED, Reason.UNSUPPORTED),
}


def test_lifecycle_hooks_page_shows_the_real_output(person: Person):
    found = person.follow(GUIDE)
    assert not found, "\n".join(found)


def first_column(page: str, head: str) -> set[str]:
    """Return the names in the first column of the table with this head."""
    [table] = re.findall(rf"^\| {re.escape(head)} \|.*\n\|[-|]+\n((?:\|.*\n)+)", page, re.MULTILINE)
    return {name for row in table.splitlines() for name in re.findall(r"`([\w\[\].]+)", row.split("|")[1])}


def fields(struct: type[msgspec.Struct]) -> set[str]:
    return {field.encode_name for field in msgspec.structs.fields(struct)}


@pytest.mark.parametrize(
    "struct",
    [
        lifecycle_hook.LifecycleHookSpec,
        lifecycle_hook.Selector,
        kube_object.ReadyRule,
        lifecycle_hook.Hold,
        lifecycle_hook.HookStep,
        lifecycle_hook.HookInput,
    ],
)
def test_every_hook_field_is_documented(struct):
    section = FILES.partition(f"\n### {struct.__name__}\n")[2].partition("\n### ")[0]
    assert first_column(section, "field") == fields(struct) - reference.REFUSED.get(struct, set())


def test_additional_rules_are_about_existing_fields():
    rules = first_column(REFERENCE.partition("\n## Variables\n")[0], "field")
    structs = {
        "": fields(lifecycle_hook.LifecycleHookSpec) | fields(lifecycle_hook.HookStep),
        "selector": fields(lifecycle_hook.Selector),
        "started": fields(kube_object.ReadyRule),
        "hold": fields(lifecycle_hook.Hold),
        "inputs[]": fields(lifecycle_hook.HookInput),
    }
    assert [name for name in rules if name.split(".")[-1] not in structs[name.rpartition(".")[0]]] == []


def test_numbers_of_hooks_are_those_of_the_code():
    assert lifecycle.PRE_STOP_TRIES == 5
    assert "five attempts for each step" in REFERENCE
    assert f"more than {jsonpath.MAX_VISITED:,} values" in REFERENCE


def test_every_hook_variable_is_documented():
    [shown] = re.findall(r"<<'END'\n(.*?)END\n", GUIDE.read_text(), re.DOTALL)
    hook = documents.load(text.parse_one(shown, file="page"))
    assert isinstance(hook, lifecycle_hook.LifecycleHook)
    given = check_hook(hook).pre_stop[0].exec
    assert given is not None
    assert [name for name in given.env if f"`{name}`" not in REFERENCE] == []
    assert f"{lifecycle_hook.FINALIZER_PREFIX}NAME" in REFERENCE


def test_every_hook_status_field_is_documented():
    documented = first_column(REFERENCE, "field of `status`")
    assert fields(kinds.LifecycleHookStatus) - documented == {"observedGeneration", "conditions"}
    assert documented <= fields(kinds.LifecycleHookStatus)


def test_every_hook_reason_is_documented():
    assert OF_HOOKS <= first_column(REFERENCE, "reason") <= set(Reason)


def test_shown_target_grant_equals_the_printed_command():
    [shown] = re.findall(r"```yaml\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    role = yaml.safe_load(shown)
    line = target_grants.grant_command("machines.cluster.example.org")
    assert f"create clusterrole {role['metadata']['name']} " in line
    [(key, value)] = role["metadata"]["labels"].items()
    assert line.endswith(f" {key}={value}")
    [rule] = role["rules"]
    assert (rule["resources"], rule["apiGroups"]) == (["machines"], ["cluster.example.org"])
    assert rule["verbs"] == target_grants.VERBS.split(",")


def test_every_refused_target_kind_is_documented():
    [last] = re.findall(r"## Kinds that a hook cannot select\n(.*)\Z", REFERENCE, re.DOTALL)
    named = {name for _, name in object_kinds.no_targets() if name in last}
    assert {"Secret", "Pod", "Event", "Endpoints", "EndpointSlice", "Lease", "ControllerRevision"} <= named
    assert all(f"`{name}`" in last for name in lifecycle_hook.OWN_NAMESPACES)
