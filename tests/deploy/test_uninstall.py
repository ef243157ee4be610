"""deploy/uninstall.sh beside people who go on making sandboxes, before a kubectl that keeps a cluster in a folder."""

from __future__ import annotations

import os
import subprocess

import pytest
from tests.policy.apiserver import ROOT

# Sandboxes are files `sandboxes/NAMESPACE:NAME`. A created one is started. A deleted one is cleaned up if the operator
# is there. `meanwhile` lists commands of another user, each before our first command that matches.
KUBECTL = r"""#!/bin/sh
cd "$CLUSTER" || exit 9
echo "$*" >> calls
while read -r pattern name; do
    case "$*" in *"$pattern"*)
        sed -i 1d meanwhile
        if [ -e kind ] && [ ! -e barred ]; then touch "sandboxes/$name"; echo "$name" >> started; fi ;;
    esac
    break
done < meanwhile
cleanup() { [ -e operator ] || exit 1; echo "$1" >> cleaned; rm "sandboxes/$1"; }
case "$*" in
"get crd sandboxes"*) [ -e kind ] ;;
"get sandboxes"*served*) ;;
"get sandboxes"*) [ -e kind ] || exit 1; for each in sandboxes/*:*; do [ -e "$each" ] && printf '%s ' "$(echo "${each#*/}" | tr : /)"; done; true ;;
"get lifecyclehooks"*) for each in hooks/*; do [ -e "$each" ] && printf '%s ' "${each#*/}"; done; true ;;
"delete lifecyclehooks"*) [ -e operator ] || exit 1; [ -e stuck ] || rm -f "hooks/$3" ;;
"get namespaces"*in-use*) [ -e operator ] && echo early >> labels; cat in-use 2>/dev/null; true ;;
"label namespaces "*) sed -i "s/$3 *//" in-use ;;
"get namespaces"*labels*) cat granted 2>/dev/null; true ;;
"get rolebindings"*) cat bindings 2>/dev/null; true ;;
"get runs"*hook*) cat owed 2>/dev/null; true ;;
"get routegroups"*) cat groups 2>/dev/null; true ;;
"get leakchecks"*) cat checks 2>/dev/null; true ;;
"get resourcepools"*) cat pools 2>/dev/null; true ;;
"get "*) ;;
"delete sandboxes"*)
    if [ -e stuck ]; then :
    elif [ -e "sandboxes/$4:$5" ]; then cleanup "$4:$5"
    else case "$*" in *--ignore-not-found*) ;; *) echo "NotFound" >&2; exit 1 ;; esac; fi ;;
"delete routegroups"*) [ -e stuck ] || rm -f groups ;;
"delete leakchecks"*) [ -e operator ] || exit 1; [ -e stuck ] || rm -f checks ;;
"delete resourcepools"*) [ -e stuck ] || rm -f pools ;;
"delete "*crds/sandboxes.yaml)
    for each in sandboxes/*:*; do [ -e "$each" ] && cleanup "${each#*/}"; done; rm -f kind ;;
"delete "*base/operator.yaml) rm -f operator ;;
"apply "*) grep -q 'operations: \[CREATE\], resources: \[sandboxes, routegroups, resourcepools, lifecyclehooks, leakchecks\]' && touch applied ;;
"create --dry-run=server "*) if [ -e barred ]; then exit 1; elif [ -e applied ]; then mv applied barred; fi ;;
"delete "*dayfly-uninstall) rm -f barred ;;
esac
"""


@pytest.fixture
def uninstall(tmp_path):
    """Run it in a cluster with these sandboxes; its calls of kubectl, the sandboxes started and those cleaned up."""

    def run(sandboxes: list[str], meanwhile: list[str], *options: str) -> tuple[list[str], list[str], list[str]]:
        (tmp_path / "sandboxes").mkdir()
        for file in ("kind", "operator", "calls", "cleaned"):
            (tmp_path / file).touch()
        for name in sandboxes:
            (tmp_path / "sandboxes" / name).touch()
        (tmp_path / "started").write_text("".join(f"{name}\n" for name in sandboxes))
        (tmp_path / "meanwhile").write_text("".join(f"{line}\n" for line in meanwhile))
        kubectl = tmp_path / "kubectl"
        kubectl.write_text(KUBECTL)
        kubectl.chmod(0o755)
        env = os.environ | {"KUBECTL": str(kubectl), "CLUSTER": str(tmp_path)}
        ended = subprocess.run(
            [ROOT / "deploy" / "uninstall.sh", *options], env=env, capture_output=True, text=True, check=False
        )
        (tmp_path / "said").write_text(ended.stderr)
        assert ended.returncode == 0, ended.stderr
        return tuple(sorted((tmp_path / file).read_text().splitlines()) for file in ("calls", "started", "cleaned"))

    return run


@pytest.mark.parametrize("moment", ["--for=delete", "crds/sandboxes.yaml", "base/policies.yaml", "base/operator.yaml"])
def test_sandbox_made_during_uninstall_is_cleaned_up_or_refused(uninstall, moment):
    """After the removal of the operator, nothing would clean it up."""
    _, started, cleaned = uninstall(["shop:old"], [f"{moment} shop:late"])
    assert started == cleaned
    assert ("shop:late" in started) is not moment.startswith("base/")


@pytest.mark.parametrize(
    "moment", ["apply", "--dry-run=server", "resourceplugins", "base/policies.yaml", "base/operator.yaml"]
)
def test_sandbox_made_during_uninstall_with_kept_crds_is_safe(uninstall, tmp_path, moment):
    """With the kinds a sandbox could be made as long as there is an operator, and after it."""
    calls, started, cleaned = uninstall(["shop:old"], [f"{moment} shop:late"], "--keep-definitions")
    assert started == cleaned
    assert ("shop:late" in started) is (moment in ("apply", "--dry-run=server"))
    assert (tmp_path / "kind").exists()
    assert not (tmp_path / "barred").exists(), "after a new installation sandboxes can be created"
    assert not [call for call in calls if "crds/" in call]


def test_sandbox_that_expires_during_uninstall_is_ignored(uninstall):
    """The time to live of the sandbox ends between the list and the deletion."""
    calls, _, cleaned = uninstall(["shop:old", "shop:other"], [])
    assert cleaned == ["shop:old", "shop:other"]
    assert all("--ignore-not-found" in call for call in calls if call.startswith("delete sandboxes"))


def test_hooks_go_before_anything_else(uninstall, tmp_path):
    """The hooks are removed while the operator runs, so that no finalizer stays on objects that live on."""
    (tmp_path / "hooks").mkdir()
    (tmp_path / "hooks" / "volume-backup").touch()
    uninstall(["shop:old"], [])
    assert not list((tmp_path / "hooks").iterdir())
    calls = (tmp_path / "calls").read_text().splitlines()
    first = next(number for number, call in enumerate(calls) if call.startswith("delete "))
    assert calls[first].startswith("delete lifecyclehooks.dayfly.dev volume-backup")


def test_leak_checks_go_while_the_operator_runs(uninstall, tmp_path):
    """The operator removes the finalizer that a check has during a sweep."""
    (tmp_path / "checks").write_text("things ")
    uninstall(["shop:old"], [])
    assert not (tmp_path / "checks").exists()


def test_nothing_goes_while_a_sweep_has_not_ended(uninstall, tmp_path):
    (tmp_path / "checks").write_text("things ")
    (tmp_path / "stuck").touch()
    with pytest.raises(AssertionError, match="leak checks whose sweep has not ended, so Dayfly is not removed: things"):
        uninstall(["shop:old"], [])
    assert (tmp_path / "operator").exists()


def test_nothing_goes_while_a_hook_owes_something(uninstall, tmp_path):
    (tmp_path / "hooks").mkdir()
    (tmp_path / "hooks" / "volume-backup").touch()
    (tmp_path / "stuck").touch()
    with pytest.raises(
        AssertionError, match="hooks whose cleanup is incomplete, so Dayfly is not removed: volume-backup"
    ):
        uninstall(["shop:old"], [])
    assert (tmp_path / "operator").exists()
    assert (tmp_path / "sandboxes" / "shop:old").exists()


def test_labels_of_namespaces_go_after_the_operator(uninstall, tmp_path):
    """While the operator is there it could set them again."""
    (tmp_path / "in-use").write_text("shop pay ")
    calls, _, _ = uninstall(["shop:old"], [])
    assert {call for call in calls if call.startswith("label ")} == {
        f"label namespaces {name} dayfly.dev/in-use-" for name in ("shop", "pay")
    }
    assert not (tmp_path / "labels").exists()


ADVICE = {
    "hooks/volume-backup": (
        "owed",
        "volume-backup|machines|cluster.example.org/v1|shop|m-1\nlogs|pods|v1|pay|p\n|sandboxes|dayfly.dev/v1|shop|box\n",
        [
            "annotate machines.cluster.example.org -n 'shop' 'm-1' dayfly.dev/abandon=uninstall",
            "annotate pods -n 'pay' 'p' dayfly.dev/abandon=uninstall",
        ],
    ),
    "groups": (
        "groups",
        "pay/team shop/all ",
        [
            "annotate routegroups.dayfly.dev -n 'pay' 'team' dayfly.dev/abandon=uninstall",
            "annotate routegroups.dayfly.dev -n 'shop' 'all' dayfly.dev/abandon=uninstall",
        ],
    ),
    "pools": (
        "pools",
        "shop/warm ",
        ["annotate resourcepools.dayfly.dev -n 'shop' 'warm' dayfly.dev/abandon=uninstall"],
    ),
    "": ("-", "", ["annotate sandboxes.dayfly.dev -n 'shop' 'old' dayfly.dev/abandon=uninstall"]),
}


@pytest.mark.parametrize("stuck", ADVICE)
def test_advice_for_stuck_objects_is_complete(uninstall, tmp_path, stuck):
    (tmp_path / "hooks").mkdir()
    (tmp_path / "stuck").touch()
    if stuck:
        (tmp_path / stuck).touch()
    file, text, advice = ADVICE[stuck]
    (tmp_path / file).write_text(text)
    with pytest.raises(AssertionError) as said:
        uninstall(["shop:old"], [])
    lines = [line.strip() for line in str(said.value).splitlines()]
    kubectl = f"{tmp_path}/kubectl "
    assert [line.removeprefix(kubectl) for line in lines if line.startswith(f"{kubectl}annotate")] == advice


def test_leftovers_are_named_with_their_commands(uninstall, tmp_path):
    (tmp_path / "bindings").write_text(
        "RoleBinding|shop|dayfly-forks|dayfly-system\nRoleBinding|pay|other|pay\nClusterRoleBinding||mine|a dayfly-system\n"
    )
    (tmp_path / "granted").write_text('shop|{"dayfly.dev/runners":"true","team":"pay"}\npay|{"team":"dayfly.dev/x"}\n')
    uninstall([], [])
    said = [line.strip().removeprefix(f"{tmp_path}/kubectl ") for line in (tmp_path / "said").read_text().splitlines()]
    assert said[-3:] == [
        "delete RoleBinding -n 'shop' 'dayfly-forks'",
        "delete ClusterRoleBinding 'mine'",
        "label namespace 'shop' dayfly.dev/runners-",
    ]
