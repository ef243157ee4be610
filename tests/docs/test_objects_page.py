"""The guide for objects: its commands print the shown output, and it has every field, reason and right."""

import re

import msgspec
import yaml
from tests.docs.conftest import ROOT, Person

from dayfly.execute.object.render import FINALIZER, SUSPEND_FIELDS
from dayfly.execute.object.run import account
from dayfly.operator.objects import grants
from dayfly.plan.reasons import Reason
from dayfly.spec import documents
from dayfly.spec.parsing import text
from dayfly.spec.steps import kube_object, object_fields

PAGE = ROOT / "docs" / "guides/kubernetes-objects.md"


def test_objects_page_shows_the_real_output(person: Person):
    found = person.follow(PAGE)
    assert not found, "\n".join(found)


def test_every_object_field_is_documented():
    page = PAGE.read_text()
    told = {name for row in re.findall(r"^\| (`.*?) \|", page, re.MULTILINE) for name in re.findall(r"`([\w.]+)", row)}
    told |= set(re.findall(r"(\w+)[,}]", " ".join(re.findall(r"^\| `valueFromSecret: \{(.*?\})", page, re.MULTILINE))))
    wanted = {field.encode_name for field in msgspec.structs.fields(kube_object.KubeObject)}
    wanted |= {f"set.{field.encode_name}" for field in msgspec.structs.fields(kube_object.InputPlacement)}
    wanted |= {field.encode_name for field in msgspec.structs.fields(kube_object.ReadyRule)}
    wanted |= {field.encode_name for field in msgspec.structs.fields(kube_object.FromSecret)}
    assert wanted - told == set()
    assert all(f"`{form}`" in page for form in kube_object.FORMS)


def test_every_object_reason_is_documented():
    page = PAGE.read_text()
    ours = [reason for reason in Reason if reason.startswith(("Object", "Kind", "Field"))] + [Reason.NAME_CONFLICT]
    assert [reason for reason in ours if f"`{reason}`" not in page and reason != Reason.KIND_NOT_FORKED] == []
    assert FINALIZER in page
    assert all(kind in page for _, kind in SUSPEND_FIELDS)


def test_shown_object_removal_can_be_parsed():
    [shown] = re.findall(r"```yaml\n(  delete:\n.*?)```", PAGE.read_text(), re.DOTALL)
    documents.load(text.parse_one("name: p\nspec:\n" + shown, file="page"))


def test_shown_object_grant_equals_the_printed_command():
    [shown] = re.findall(r"```yaml\n(apiVersion: rbac.*?)```", PAGE.read_text(), re.DOTALL)
    role, binding = yaml.safe_load_all(shown)
    line = grants.grant_commands("shop", "jobs.batch")
    assert f"create role {role['metadata']['name']} --namespace shop" in line
    assert role["rules"] == [{"apiGroups": ["batch"], "resources": ["jobs"], "verbs": grants.VERBS.split(",")}]
    [subject] = binding["subjects"]
    assert account("shop") == f"system:serviceaccount:{subject['namespace']}:{subject['name']}"


def test_every_refused_field_is_documented():
    page = PAGE.read_text()
    rows = [*object_fields.ANYWHERE, *(row for rows in object_fields.OF_KIND.values() for row in rows)]
    by_probe = [row for row in rows if row.keys[-1] == "host"]
    assert [row.path for row in rows if row not in by_probe and f"`{row.path}`" not in page] == []
    assert [row.keys[0] for row in by_probe if f"`{row.keys[0]}`" not in page] == []
    assert [kind for _, kind in object_fields.OF_KIND if kind not in page] == []
