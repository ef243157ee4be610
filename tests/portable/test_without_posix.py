"""The command line and the client where Python runs but POSIX is absent: they talk to servers, and local hosts are refused."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.server import specs
from tests.server.client import KEY, serving
from tests.server.fake_host import FakeHost

HERE = Path(__file__).resolve().parent
PLUGIN = HERE.parents[1] / "examples" / "sqlite-notes" / "plugin.yaml"
EVERY_MODULE = """
import importlib, pkgutil, sys
for name in ("client", "cli", "spec", "compile", "plan", "lint", "testing", "kube"):
    package = importlib.import_module(f"dayfly.{name}")
    for module in pkgutil.walk_packages(package.__path__, f"dayfly.{name}."):
        if module.name == "dayfly.cli.mcp.server":
            continue  # the MCP SDK decides by sys.platform whether it imports fcntl, and this is Linux
        importlib.import_module(module.name)
import dayfly.pytest_plugin  # each pytest in the same environment imports it
print(len(sys.modules))
"""
LISTING = """
import os
from dayfly.client import Client
with Client(os.environ["DAYFLY_URL"], os.environ["DAYFLY_API_KEY"]) as client:
    print([each.name for each in client.sandboxes.list()])
"""


@pytest.fixture
def run(tmp_path):
    """Run the command line, or a Python file, without POSIX; the function returns the completed process."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DAYFLY_")}

    def run(*arguments, stdin="", **variables):
        return subprocess.run(
            [sys.executable, HERE / "without_posix.py", *map(str, arguments)],
            env=kept | {"DAYFLY_HOME": str(tmp_path / "home")} | variables,
            input=stdin,
            capture_output=True,
            text=True,
        )

    return run


@pytest.fixture
def server(tmp_path):
    with serving(tmp_path / "control.db", {"local": FakeHost()}) as found:
        found.put("sandboxes/box", specs.empty())
        yield {"DAYFLY_URL": f"http://127.0.0.1:{found.port}", "DAYFLY_API_KEY": KEY}


def test_modules_of_client_and_cli_are_imported(run, tmp_path):
    (tmp_path / "modules.py").write_text(EVERY_MODULE)
    ended = run(tmp_path / "modules.py")
    assert ended.returncode == 0, ended.stderr
    assert int(ended.stdout) > 500


def test_command_line_works_with_a_server(run, server):
    assert (ended := run("dayfly", "--help")).returncode == 0, ended.stderr
    ended = run("dayfly", "get", **server)
    assert "box" in ended.stdout, ended.stderr
    assert run("dayfly", "sandbox", "delete", "absent", **server).returncode == 3


def test_login_stores_the_server(run, server):
    ended = run("dayfly", "login", server["DAYFLY_URL"], "--name", "shared", stdin=KEY)
    assert ended.returncode == 0, ended.stderr
    assert "box" in run("dayfly", "get", "--server", "shared").stdout


def test_client_lists_sandboxes(run, server, tmp_path):
    (tmp_path / "listing.py").write_text(LISTING)
    ended = run(tmp_path / "listing.py", **server)
    assert ended.stdout == "['box']\n", ended.stderr


@pytest.mark.parametrize(
    "command", [["up"], ["with", "-f", "plugin.yaml", "--", "true"], ["plugin", "test", "-f", PLUGIN]]
)
def test_embedded_host_is_refused_with_alternatives(run, command):
    ended = run("dayfly", *command)
    assert ended.returncode == 2
    assert "Linux" in ended.stderr
    assert "--server" in ended.stderr
