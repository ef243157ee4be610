"""The terraform example: its state outlives every step, and a killed process leaves nothing to remove by hand."""

import contextlib
import json
import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.examples import external_services
from tests.examples.home import Home, until
from tests.examples.kinds import FOLDER, Example

only = pytest.mark.parametrize("example", ["terraform"], indirect=True)
THINGS = 5
# Each thing is a file outside of the state, which carries the resource's id.
_MODULE = """
variable "resource_id" {{
  type = string
}}
resource "terraform_data" "thing" {{
  count = {things}
  input = "{folder}/${{var.resource_id}}-${{count.index}}"
  provisioner "local-exec" {{
    command = "touch ${{self.input}}; {then}"
  }}
  provisioner "local-exec" {{
    when    = destroy
    command = "rm {how} ${{self.input}}"
  }}
}}
"""


def wished(into: Path, folder: Path, *, things=1, then="true", how="-f") -> tuple[Path, Path]:
    """The example's plugin, and its sandbox with a module that makes things in `folder`."""
    module = _MODULE.format(things=things, folder=folder, then=then, how=how)
    params = {"module": module, "sweep": f'rm -f {folder}/"$DAYFLY_RESOURCE_ID"-*'}
    resources = [{"name": "stack", "plugin": "terraform@1.0.0", "params": params}]
    sandbox = into / "sandbox.json"
    sandbox.write_text(json.dumps({"name": "terraform-demo", "spec": {"cluster": "local", "resources": resources}}))
    return FOLDER / "terraform" / "plugin.yaml", sandbox


def kept(home: Home) -> list[str]:
    """Return the runs that have a state on the disk."""
    return [path.name for path in (home.path / "states").glob("*") if path.is_dir()]


@only
def test_resources_of_a_killed_apply_are_found_by_name(example: Example, home: Home, tmp_path: Path, folder: Path):
    """Terraform writes its state every 20 seconds, so the state lacks things that it made just before it was killed."""
    home.dayfly("apply", *example.arguments(*wished(tmp_path, folder, then="kill -9 $PPID; sleep 5")), code=1)
    assert list(folder.iterdir()), "terraform is to have made a thing"
    home.dayfly("sandbox", "delete", "terraform-demo")
    assert example.left() == []


@only
def test_a_destroy_that_fails_keeps_the_state_until_it_succeeds(
    example: Example, home: Home, tmp_path: Path, folder: Path
):
    """`rm` fails because the file is gone already; once it is back, the next attempt ends the job."""
    home.dayfly("apply", *example.arguments(*wished(tmp_path, folder, how="")))
    (effect,) = folder.iterdir()
    effect.unlink()
    home.dayfly("sandbox", "delete", "terraform-demo", "--wait=false")
    until(lambda: "stack/destroy: WaitingToRetry" in home.dayfly("why", "terraform-demo"), "the destroy step fails")
    assert "stack/apply, attempt 1" in home.dayfly("state", "list", "terraform-demo")
    assert json.loads(home.dayfly("state", "show", "terraform-demo", "stack"))["resources"]
    effect.touch()
    home.dayfly("retry", "terraform-demo", code=(0, 1, 3))  # 1, 3: its wait has just ended by itself
    until(lambda: kept(home) == [], "the next attempt")
    assert example.left() == []


@only
@pytest.mark.proof
def test_a_module_that_is_wrong_is_said_and_can_be_deleted(example: Example, home: Home, tmp_path: Path, folder: Path):
    plugin, sandbox = wished(tmp_path, folder)
    sandbox.write_text(sandbox.read_text().replace("terraform_data", "terraform data"))
    home.dayfly("apply", *example.arguments(plugin, sandbox), code=1)
    home.dayfly("sandbox", "delete", "terraform-demo")


@only
def test_the_modules_outputs_are_one_sensitive_output(example: Example, home: Home):
    home.dayfly("apply", *example.arguments())
    values = json.loads(home.outputs("terraform-demo")["stack/apply.values"])
    assert values["greeting"]["value"].startswith("Good morning, ")
    (value,) = home.json("env", "terraform-demo")
    assert value["sensitive"] is True


@only
@pytest.mark.proof
def test_abandoned_cleanup_keeps_the_terraform_state(example: Example, home: Home, tmp_path: Path, folder: Path):
    home.dayfly("apply", *example.arguments(*wished(tmp_path, folder)))
    home.dayfly("abandon", "terraform-demo", "--reason", "lost", "--force")
    until(lambda: not home.json("sandbox", "list"), "the sandbox's end")
    state = json.loads(home.dayfly("state", "show", "terraform-demo", "stack"))
    (effect,) = folder.iterdir()
    assert state["resources"][0]["instances"][0]["attributes"]["input"]["value"] == str(effect)
    effect.unlink()


# As in a GitLab job that has its own Terraform state.
_INHERITED = {
    "TF_HTTP_ADDRESS": "https://gitlab.example/state",
    "TF_HTTP_LOCK_ADDRESS": "https://gitlab.example/state/lock",
    "TF_HTTP_LOCK_METHOD": "POST",
    "TF_HTTP_UNLOCK_ADDRESS": "https://gitlab.example/state/lock",
    "TF_HTTP_UNLOCK_METHOD": "DELETE",
    "TF_HTTP_UPDATE_METHOD": "PUT",
    "TF_HTTP_USERNAME": "gitlab-ci-token",
    "TF_HTTP_PASSWORD": "token",
    "TF_HTTP_RETRY_MAX": "0",
    "TF_HTTP_RETRY_WAIT_MIN": "x",
    "TF_HTTP_CLIENT_CA_CERTIFICATE_PEM": "not a certificate",
    "TF_HTTP_CLIENT_CERTIFICATE_PEM": "not a certificate",
    "TF_HTTP_CLIENT_PRIVATE_KEY_PEM": "not a key",
    "TF_STATE_PERSIST_INTERVAL": "3600",
    "TF_WORKSPACE": "dev",
    "TF_DATA_DIR": "/nonexistent/data",
    "TF_CLI_ARGS_init": "-backend=false",
    "TF_CLI_ARGS_destroy": "-target=terraform_data.nothing",
    "HTTP_PROXY": "http://127.0.0.1:9",
    "HTTPS_PROXY": "http://127.0.0.1:9",
}


@only
def test_inherited_environment_changes_nothing(example: Example, home: Home, tmp_path: Path, folder: Path):
    home.down()
    home.environment |= _INHERITED
    home.up()
    home.dayfly("apply", *example.arguments(*wished(tmp_path, folder)))
    assert len(list(folder.iterdir())) == 1
    home.dayfly("sandbox", "delete", "terraform-demo")
    assert example.left() == []


_HTTP = 'backend "http" {}'
_WRITE = 'curl -s -u "$TF_HTTP_USERNAME:$TF_HTTP_PASSWORD" -d {} "$TF_HTTP_ADDRESS?ID=other"'
_APPLY, _DESTROY = "terraform apply -no-color -auto-approve", "terraform destroy -no-color -auto-approve"


def written(into: Path, folder: Path, create: str, destroy: str, backend: str = _HTTP) -> Path:
    """A plugin and a sandbox whose scripts end with these commands."""
    module = _MODULE.format(things=1, folder=folder, then="true", how="")
    begin = f"""#!/bin/sh
set -u
export CHECKPOINT_DISABLE=1 TF_INPUT=0 TF_VAR_resource_id="$DAYFLY_RESOURCE_ID"
cd "$(mktemp -d)"
cat >main.tf <<'END'
terraform {{
  {backend}
}}
{module}
END
terraform init -no-color >/dev/null
"""
    scripts = {"create": ("make", create), "delete": ("drop", destroy)}
    steps = {event: [{"name": name, "script": begin + text}] for event, (name, text) in scripts.items()}
    plugin = into / "written.json"
    plugin.write_text(json.dumps({"name": "written", "spec": {"state": True, **steps}}))
    sandbox = {"cluster": "local", "resources": [{"name": "r", "plugin": "written"}]}
    (into / "sandbox.json").write_text(json.dumps({"name": "box", "spec": sandbox}))
    return plugin


@only
@pytest.mark.parametrize(
    ("create", "destroy"),
    [
        (f"{_APPLY} -lock=false", _DESTROY),
        (f"{_APPLY} --lock=0", f"{_DESTROY} -lock=f"),
        (f"TF_CLI_ARGS_apply=-lock=false {_APPLY}", f"TF_CLI_ARGS=-no-color {_DESTROY}"),
        (f"export TF_HTTP_LOCK_ADDRESS= TF_HTTP_UNLOCK_ADDRESS=; {_APPLY}", _DESTROY),
        (f"export TF_HTTP_LOCK_METHOD=POST TF_HTTP_UNLOCK_METHOD=DELETE; {_APPLY}", _DESTROY),
        (f"{_APPLY} && {_APPLY} -lock=false -replace='terraform_data.thing[0]' ", _DESTROY),
    ],
)
def test_resource_of_apply_without_lock_is_destroyed(
    example: Example, home: Home, tmp_path: Path, folder: Path, create: str, destroy: str
):
    plugin = written(tmp_path, folder, create, destroy)
    home.dayfly("apply", *example.arguments(plugin, tmp_path / "sandbox.json"))
    assert len(list(folder.iterdir())) == 1
    home.dayfly("sandbox", "delete", "box")
    assert example.left() == []


@only
@pytest.mark.parametrize(
    ("create", "destroy", "backend", "reason"),
    [
        (_APPLY, _DESTROY, "", "StateMissing"),
        (
            f"rm -rf .terraform && sed -i /backend/d main.tf && terraform init && {_APPLY}",
            _DESTROY,
            _HTTP,
            "StateMissing",
        ),
        (f"{_APPLY}; {_WRITE}; true", _DESTROY, _HTTP, "StateRefused"),
        (_APPLY, "true", _HTTP, "StateNotEmpty"),
        (f"{_APPLY}; exit 1", _DESTROY, "", "StateNotRead"),
    ],
    ids=["no backend", "backend removed", "refused", "not destroyed", "no backend of a failed create"],
)
def test_delete_is_not_done_with_a_resource_left(
    example: Example, home: Home, tmp_path: Path, folder: Path, create: str, destroy: str, backend: str, reason: str
):
    plugin = written(tmp_path, folder, create, destroy, backend)
    home.dayfly("apply", *example.arguments(plugin, tmp_path / "sandbox.json"), code=(0, 1))
    if reason in ("StateMissing", "StateRefused"):
        assert f"r/make: {reason}" in home.dayfly("why", "box")
    home.dayfly("sandbox", "delete", "box", "--wait=false")
    until(lambda: reason in home.dayfly("why", "box"), "the delete step to fail")
    for effect in folder.iterdir():
        effect.unlink()
    home.dayfly("abandon", "box", "--reason", "removed by hand")
    until(lambda: not home.json("sandbox", "list"), "the end of the sandbox")


class Story:
    """The life of one sandbox, in which a process is killed once a given number of things exist."""

    def __init__(self, example: Example, home: Home, folder: Path) -> None:
        self.example, self.home, self.folder = example, home, folder
        self.mark = f"TERRAFORM_TEST={folder}".encode()

    def play(self, wishes: tuple[Path, ...], victim: str, phase: str, count: int) -> None:
        home = self.home
        home.dayfly("apply", *self.example.arguments(*wishes), *(("--wait=false",) if phase == "apply" else ()))
        if phase == "apply":
            until(lambda: len(list(self.folder.iterdir())) >= count and self._programs(), "so far")
        else:
            home.dayfly("sandbox", "delete", "terraform-demo", "--wait=false")
            until(lambda: len(list(self.folder.iterdir())) <= count, "so far")
        self._kill(victim)
        if kept(home) and "terraform-demo" in home.dayfly("state", "list", code=(0, 3)):
            json.loads(home.dayfly("state", "show", "terraform-demo", "stack", code=(0, 3)) or "{}")
        home.dayfly("sandbox", "delete", "terraform-demo", code=(0, 3))
        assert self.example.left() == []

    def _programs(self) -> list[int]:
        """The living Terraforms of this home's steps."""
        return [pid for pid in _processes(self.mark) if _name(pid) == "terraform"]

    def _kill(self, victim: str) -> None:
        if victim == "server":
            self.home.kill()
            self.home.up()
            return
        found = self._programs() if victim == "terraform" else _runners(self.home)
        for pid in found:
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.kill(pid, signal.SIGKILL)


@only
@pytest.mark.parametrize(("victim", "phase", "count"), [("terraform", "apply", 2), ("server", "apply", 1)])
def test_terraform_run_survives_a_kill(
    example: Example, home: Home, tmp_path: Path, folder: Path, victim: str, phase: str, count: int
):
    story = Story(example, home, folder)
    story.play(wished(tmp_path, folder, things=THINGS, then="sleep 0.4"), victim, phase, count)


@only
@pytest.mark.proof
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("program", ["terraform", "tofu"])
def test_twenty_terraform_runs_survive_random_kills(
    example: Example, home: Home, tmp_path: Path, folder: Path, program: str
):
    chance = random.Random(program)
    if program == "tofu":
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin" / "terraform").symlink_to(external_services.tofu())
        home.down()
        home.environment["PATH"] = f"{tmp_path / 'bin'}:{home.environment['PATH']}"
        home.up()
    story = Story(example, home, folder)
    wishes = wished(tmp_path, folder, things=THINGS, then="sleep 0.4")
    for _ in range(20):
        victim, phase = chance.choice(["terraform", "step", "server"]), chance.choice(["apply", "apply", "destroy"])
        story.play(wishes, victim, phase, chance.randrange(THINGS - 1))


def _processes(mark: bytes) -> Iterator[int]:
    """Return the processes with this mark in their environment."""
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and mark in (entry / "environ").read_bytes().split(b"\0"):
                yield int(entry.name)
        except OSError:
            continue  # it has ended


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _runners(home: Home) -> list[int]:
    """The runners of steps that have begun."""
    work = Path((home.path / "place").read_text())
    markers = [path for path in work.glob("*/marker") if path.exists()]
    return [int(pid) for path in markers if (pid := path.read_text().split("\n")[1]).isdigit()]
