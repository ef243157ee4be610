"""The GitHub Action: its script runs with a real server and a small GitHub, as the steps of action.yml start it."""

import json
import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import yaml
from tests.docs.conftest import ROOT

from dayfly.client import Client

ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
_, PREVIEW = ACTION["runs"]["steps"]
FILE = """\
name: "pr-@{pr}"
spec:
  cluster: local
  resources:
  - name: db
    plugin: scratch
    params: {}
"""
PLUGIN = """\
name: scratch@1.0.0
spec:
  create: [{name: make, script: "#!/bin/sh\\nexit ${CODE:-0}\\n"}]
  delete: [{name: drop, script: "#!/bin/sh\\n"}]
"""


class GitHub(ThreadingHTTPServer):
    """Pull requests and their comments; 7 is open, all others are closed or absent."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Requests)
        self.comments = {}
        self.tokens = set()
        self.readable = self.writable = True


class Requests(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.tokens.add(self.headers["Authorization"])
        path = self.path.removeprefix("/repos/team/shop/").partition("?")[0]
        if not self.server.readable:
            self.send(404, {"message": "Not Found"})
        elif path == "pulls":
            self.send(200, [])
        elif found := re.fullmatch(r"pulls/(\d+)", path):
            self.send(200 if found[1] in "78" else 404, {"state": "open" if found[1] == "7" else "closed"})
        else:
            self.send(200, [{"id": key, "body": body} for key, body in self.server.comments.items()])

    def do_POST(self):
        if not self.server.writable:
            self.body()
            self.send(403, {"message": "Resource not accessible by integration"})
            return
        self.server.comments[len(self.server.comments) + 1] = self.body()
        self.send(201, {})

    def do_PATCH(self):
        self.server.comments[int(self.path.rpartition("/")[2])] = self.body()
        self.send(200, {})

    def body(self):
        return json.loads(self.rfile.read(int(self.headers["Content-Length"])))["body"]

    def send(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


@pytest.fixture
def github():
    server = GitHub()
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def act(person, github):
    """Run the action for an event with inputs; the function returns the completed process."""
    folder = person.home / "repository"
    folder.mkdir()
    (folder / "preview.yaml").write_text(FILE)
    (folder / "plugin.yaml").write_text(PLUGIN)
    program = folder / "dayfly-venv" / "bin" / "python"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    program.chmod(0o755)
    machine = person.environment | {"PYTHONPATH": str(ROOT / "src")}
    dayfly = [sys.executable, "-m", "dayfly"]
    home = person.home / ".local" / "state" / "dayfly"
    subprocess.run([*dayfly, "up", "--detach", "--port", "0"], env=machine, check=True, capture_output=True)
    subprocess.run([*dayfly, "plugin", "apply", "-f", folder / "plugin.yaml"], env=machine, check=True)
    url, key = (home / "url").read_text().strip(), (home / "key").read_text().strip()
    context = {
        "github.action_path": str(ROOT),
        "github.token": "token",
        "steps.preview.outputs.name": "",
        "steps.preview.outputs.ready": "",
    }

    def expand(text, inputs):
        return re.sub(r"\$\{\{ (\S+) \}\}", lambda found: {**context, **inputs}[found[1]], text)

    def act(event, **given):
        values = {name: each.get("default", "") for name, each in ACTION["inputs"].items()}
        values |= {"url": url, "api-key": key} | given
        inputs = {f"inputs.{name}": expand(value, {}) for name, value in values.items()}
        (folder / "event.json").write_text(json.dumps(event))
        runner = {
            "GITHUB_API_URL": f"http://127.0.0.1:{github.server_address[1]}",
            "GITHUB_REPOSITORY": "team/shop",
            "GITHUB_EVENT_PATH": str(folder / "event.json"),
            "GITHUB_OUTPUT": str(folder / "output"),
            "RUNNER_TEMP": str(folder),
            "DAYFLY_HOME": str(person.home / "elsewhere"),
        }
        env = machine | runner | {name: expand(value, inputs) for name, value in PREVIEW["env"].items()}
        (folder / "output").write_text("")
        ended = subprocess.run(
            ["bash", "-e", "-c", PREVIEW["run"]], cwd=folder, env=env, capture_output=True, text=True
        )
        return ended, (folder / "output").read_text()

    act.client = Client(url, key)
    yield act
    act.client.close()
    subprocess.run([*dayfly, "down"], env=machine, check=True, capture_output=True)


def names(act):
    return {each.name for each in act.client.sandboxes.list()}


@pytest.mark.slow
def test_open_pull_request_has_a_sandbox_and_one_comment(act, github):
    opened = {"action": "opened", "pull_request": {"number": 7}}
    ended, output = act(opened)
    assert ended.returncode == 0, ended.stderr
    assert output == "name=pr-7\nready=true\n"
    assert names(act) == {"pr-7"}
    assert "is ready" in github.comments[1]
    assert act(opened | {"action": "synchronize"})[0].returncode == 0
    ended, _ = act(opened | {"action": "closed"})
    assert ended.returncode == 0, ended.stderr
    assert names(act) == set()
    assert list(github.comments) == [1]
    assert "is deleted" in github.comments[1]
    assert github.tokens == {"Bearer token"}


@pytest.mark.slow
def test_schedule_deletes_leftovers_and_fails(act, github):
    for number in (7, 8, 9):
        ended, _ = act({"action": "opened", "pull_request": {"number": number}}, comment="false")
        assert ended.returncode == 0, ended.stderr
    ended, _ = act({"schedule": "0 3 * * *"})
    assert ended.returncode == 1
    assert re.findall(r"sandbox (\S+) outlived", ended.stdout) == ["pr-8", "pr-9"]
    assert names(act) == {"pr-7"}
    assert github.comments == {}
    assert act({"schedule": "0 3 * * *"})[0].returncode == 0


OPENED = {"action": "opened", "pull_request": {"number": 7}}


@pytest.mark.slow
def test_invalid_inputs_create_nothing(act):
    for given, problem in [
        ({"name": "preview"}, "input name"),
        ({"name": "shop-@{pr}"}, "preview.yaml: the file names the sandbox 'pr-7', and the input name is shop-@{pr}"),
        ({"url": ""}, "input url: it is empty"),
        ({"api-key": ""}, "input api-key: it is empty; jobs for pull requests from forks"),
        ({"comment": "yes"}, "input comment: 'yes' is neither true nor false"),
        ({"file": "none.yaml"}, "none.yaml"),
        ({"timeout": "soon"}, "'soon' is not a duration"),
    ]:
        ended, _ = act(OPENED, **given)
        assert ended.returncode != 0, given
        assert problem in ended.stdout + ended.stderr, given
        assert "Traceback" not in ended.stderr
        assert names(act) == set()


@pytest.mark.slow
def test_sweep_without_access_to_pull_requests_deletes_nothing(act, github):
    assert act(OPENED, comment="false")[0].returncode == 0
    github.readable = False
    ended, _ = act({"schedule": "0 3 * * *"})
    assert ended.returncode == 1
    assert "permission pull-requests: read" in ended.stderr
    assert names(act) == {"pr-7"}


@pytest.mark.slow
def test_refused_comment_names_the_permission(act, github):
    github.writable = False
    ended, _ = act(OPENED)
    assert ended.returncode == 1
    assert "::error::GitHub refuses POST issues/7/comments (403" in ended.stderr
    assert "pull-requests: write" in ended.stderr
    assert names(act) == {"pr-7"}


@pytest.mark.slow
def test_wrong_key_is_an_error_without_traceback(act):
    ended, _ = act({"schedule": "0 3 * * *"}, **{"api-key": "wrong"})
    assert ended.returncode == 1
    assert ended.stderr.startswith("::error::")


def test_action_scripts_contain_no_expressions():
    """GitHub replaces `${{ }}` before the shell reads the script."""
    assert not any("${{" in step["run"] for step in ACTION["runs"]["steps"])
    assert all(each.get("required") or "default" in each for each in ACTION["inputs"].values())
