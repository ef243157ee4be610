"""The embedded host behind the real server: a refusal reaches the caller in one line."""

import os
import subprocess
import sys

BASELINE = """
kind: Deployment
name: app
command: [sleep, "60"]
"""
SANDBOX = """
name: box
spec:
  cluster: local
  forks:
    - forkOf: {kind: Deployment, namespace: default, name: app}
      customizations:
        env: [{name: TOKEN, valueFrom: {secret: {name: s, key: k}}}]
"""


def dayfly(home, *arguments, path=os.environ["PATH"]):
    environment = {**os.environ, "DAYFLY_HOME": str(home), "PATH": path}
    command = [sys.executable, "-m", "dayfly", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)


def test_cluster_only_value_is_refused_with_advice(tmp_path):
    home = tmp_path / "home"
    for name, text in (("app.yaml", BASELINE), ("box.yaml", SANDBOX)):
        (tmp_path / name).write_text(text)
    up = dayfly(home, "up", "--detach", "--port", "0")
    try:
        assert up.returncode == 0, up.stderr
        assert dayfly(home, "apply", "-f", str(tmp_path / "app.yaml")).returncode == 0
        done = dayfly(home, "apply", "-f", str(tmp_path / "box.yaml"))
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
        assert "fork of app: TOKEN comes from a secret" in done.stderr
        assert "write it as value" in done.stderr
        assert "box" not in dayfly(home, "sandbox", "list").stdout
    finally:
        dayfly(home, "down")
    assert not (home / "url").exists()


def test_an_engine_that_is_not_installed_is_said_at_once(tmp_path):
    done = dayfly(tmp_path / "home", "up", "--engine", "docker", path=str(tmp_path))
    assert done.returncode == 1
    assert done.stderr == "dayfly: docker is not installed; install it, or start without --engine\n"
