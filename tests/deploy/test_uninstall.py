"""deploy/uninstall.sh beside people who go on making sandboxes, before a kubectl that keeps a cluster in a folder."""

from __future__ import annotations

import os
import subprocess

import pytest

from policy.apiserver import ROOT

# Sandboxes are files `sandboxes/NAMESPACE:NAME`; a made one is started, and cleaned up when it is deleted as long as the
# operator is there. `meanwhile` lists commands of somebody else, each before the first of ours that matches.
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
"get sandboxes"*) [ -e kind ] || exit 1; for each in sandboxes/*:*; do [ -e "$each" ] && printf '%s ' "$(echo "${each#*/}" | tr : /)"; done; true ;;
"get lifecyclehooks"*) for each in hooks/*; do [ -e "$each" ] && printf '%s ' "${each#*/}"; done; true ;;
"delete lifecyclehooks"*) [ -e operator ] || exit 1; [ -e stuck ] || rm -f "hooks/$3" ;;
"get "*) ;;
"delete sandboxes"*)
    if [ -e "sandboxes/$4:$5" ]; then cleanup "$4:$5"
    else case "$*" in *--ignore-not-found*) ;; *) echo "NotFound" >&2; exit 1 ;; esac; fi ;;
"delete "*crds/sandboxes.yaml)
    for each in sandboxes/*:*; do [ -e "$each" ] && cleanup "${each#*/}"; done; rm -f kind ;;
"delete "*base/operator.yaml) rm -f operator ;;
"apply "*) grep -q 'operations: \[CREATE\], resources: \[sandboxes, routegroups, lifecyclehooks\]' && touch applied ;;
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
        assert ended.returncode == 0, ended.stderr
        return tuple(sorted((tmp_path / file).read_text().splitlines()) for file in ("calls", "started", "cleaned"))

    return run


@pytest.mark.rotates(2)
@pytest.mark.parametrize("moment", ["--for=delete", "crds/sandboxes.yaml", "base/policies.yaml", "base/operator.yaml"])
def test_whatever_is_made_meanwhile_is_cleaned_up_or_never_made(uninstall, moment):
    """Once the operator is gone nobody would."""
    _, started, cleaned = uninstall(["shop:old"], [f"{moment} shop:late"])
    assert started == cleaned
    assert ("shop:late" in started) is not moment.startswith("base/")


@pytest.mark.rotates(2)
@pytest.mark.parametrize(
    "moment", ["apply", "--dry-run=server", "resourceplugins", "base/policies.yaml", "base/operator.yaml"]
)
def test_where_the_kinds_stay_the_last_one_is_cleaned_up_or_refused(uninstall, tmp_path, moment):
    """With the kinds a sandbox could be made as long as there is an operator, and after it."""
    calls, started, cleaned = uninstall(["shop:old"], [f"{moment} shop:late"], "--keep-definitions")
    assert started == cleaned
    assert ("shop:late" in started) is (moment in ("apply", "--dry-run=server"))
    assert (tmp_path / "kind").exists()
    assert not (tmp_path / "barred").exists(), "whoever installs Dayfly again can make sandboxes"
    assert not [call for call in calls if "crds/" in call]


def test_one_that_goes_by_itself_meanwhile_stops_nothing(uninstall):
    """Its time to live is over between the list and its deletion."""
    calls, _, cleaned = uninstall(["shop:old", "shop:other"], [])
    assert cleaned == ["shop:old", "shop:other"]
    assert all("--ignore-not-found" in call for call in calls if call.startswith("delete sandboxes"))


def test_hooks_go_before_anything_else(uninstall, tmp_path):
    """While the operator is there: no finalizer of theirs may stay on objects that live on."""
    (tmp_path / "hooks").mkdir()
    (tmp_path / "hooks" / "volume-backup").touch()
    uninstall(["shop:old"], [])
    assert not list((tmp_path / "hooks").iterdir())
    calls = (tmp_path / "calls").read_text().splitlines()
    first = next(number for number, call in enumerate(calls) if call.startswith("delete "))
    assert calls[first].startswith("delete lifecyclehooks.dayfly.dev volume-backup")


def test_nothing_goes_while_a_hook_owes_something(uninstall, tmp_path):
    (tmp_path / "hooks").mkdir()
    (tmp_path / "hooks" / "volume-backup").touch()
    (tmp_path / "stuck").touch()
    with pytest.raises(AssertionError, match="hooks that still owe something, so Dayfly stays as it is: volume-backup"):
        uninstall(["shop:old"], [])
    assert (tmp_path / "operator").exists()
    assert (tmp_path / "sandboxes" / "shop:old").exists()
