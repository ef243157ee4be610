"""Each error of a server becomes one line with an exit code."""

from __future__ import annotations

import contextlib
import fcntl
import json
import socket
import subprocess
import threading
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest
import yaml
from tests.cli.command import COMMAND, Cli, refused
from tests.cli.fake_server import Fake, serving

from dayfly.cli.backends.target_server import ServerClient
from dayfly.client.address import Address
from dayfly.client.errors import RefusedError
from dayfly.plan.reason_catalog import CATALOGUE, SECTIONS, Severity, Subject

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def fake(cli: Cli) -> Iterator[Fake]:
    """A scripted server whose address and key are in the home."""
    found = Fake()
    with serving(found) as url:
        cli.home.mkdir()
        (cli.home / "url").write_text(url + "\n")
        (cli.home / "key").write_text("s3cret\n")
        (cli.home / "key").chmod(0o600)
        yield found


def test_the_key_goes_with_every_request(cli: Cli, fake: Fake):
    fake.say("GET", "sandboxes", [])
    assert cli("sandbox", "list").code == 0
    assert cli("sandbox", "list", DAYFLY_API_KEY="other").code == 0
    assert fake.keys == ["Bearer s3cret", "Bearer other"]


def _listed(name: str) -> dict[str, object]:
    state = {"phase": "open", "units": [], "ready": True, "reason": "Ready", "message": ""}
    times = {"createdAt": "2026-01-01T00:00:00Z", "updatedAt": "2026-01-01T00:00:00Z"}
    return {"name": name, "routingKey": "k", **times, "spec": {"cluster": "local"}, "status": state, "report": state}


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (["get"], "sandboxes"),
        (["get", "resources"], "sandboxes"),
        (["get", "parents"], "sandboxes"),
        (["get", "routegroups"], "routegroups"),
        (["sandbox", "list"], "sandboxes"),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, list) else given,
)
def test_list_of_few_objects_is_one_request(cli: Cli, fake: Fake, words: list[str], kind: str):
    fake.say("GET", kind, [_listed(name) for name in "abc"])
    done = cli(*words)
    assert done.code == 0, done.err
    assert len(fake.asked) == 1


def test_long_list_is_one_request_for_each_page(cli: Cli, fake: Fake):
    pages = [[_listed(f"{page}-{number}") for number in range(size)] for page, size in enumerate((500, 500, 1))]
    fake.say("GET", "sandboxes", *pages)
    assert len(cli("get", "-o", "name").out.splitlines()) == 1001
    assert len(fake.asked) == 3


@pytest.mark.parametrize(
    ("status", "code", "advice"),
    [(400, 2, ""), (401, 5, "DAYFLY_API_KEY"), (403, 5, "DAYFLY_HOME"), (404, 3, ""), (409, 1, ""), (503, 1, "")],
)
def test_the_server_s_own_words_and_a_code_for_each_status(cli: Cli, fake: Fake, status: int, code: int, advice: str):
    fake.say("GET", "sandboxes", {"error": "so it is", "requestId": "r-1"}, status=status)
    refused(cli("sandbox", "list"), code, "so it is", advice)


def test_something_else_is_at_the_address(cli: Cli, fake: Fake):
    for body in (b"<html>", b"[" * 50_000 + b"]" * 50_000):
        fake.say("GET", "sandboxes", body)
        refused(cli("sandbox", "list"), 6, "is not Dayfly: it answers 200 without JSON")
    fake.say("GET", "sandboxes", {"unexpected": 1}, status=500)
    refused(cli("sandbox", "list"), 1, "the server answered 500 without giving a reason")


@pytest.mark.parametrize("body", [[], "ok", 7, None])
def test_something_else_that_speaks_json_is_at_the_address(cli: Cli, fake: Fake, body: object):
    fake.take = lambda *_: (200, body)
    refused(cli("status"), 6, "is not Dayfly: it answers 200 with other JSON")


@pytest.mark.parametrize("body", [b"", b"<html>moved</html>", {}])
def test_redirect_is_reported_as_another_program(cli: Cli, fake: Fake, body: object):
    """As by a proxy that wants https: its empty answer is neither an empty list nor a key that is revoked."""
    for method, path in (("GET", "sandboxes"), ("DELETE", "keys/abc")):
        fake.say(method, path, body, status=308)
    said = "is not Dayfly: it answers 308, which leads elsewhere"
    refused(cli("sandbox", "list"), 6, said)
    refused(cli("key", "delete", "abc"), 6, said)


@contextlib.contextmanager
def answering(answer: bytes) -> Iterator[str]:
    """A program that sends these bytes to the first client, whatever that sends; its address."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        thread.join()


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"", "closed the connection without an answer"),
        (b"SSH-2.0-OpenSSH\r\n", "does not speak HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n[", "broke off in the middle of its answer"),
    ],
)
def test_no_http_at_the_address(cli: Cli, answer: bytes, message: str):
    with answering(answer) as url:
        refused(cli("sandbox", "list", DAYFLY_URL=url), 6, message)


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>",
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 6\r\n\r\n<html>",
        b'HTTP/1.1 404 Not Found\r\nContent-Length: 14\r\n\r\n{"detail":"x"}',
        b"HTTP/1.1 302 Found\r\nLocation: /login\r\nContent-Length: 0\r\n\r\n",
    ],
)
def test_other_program_at_dayfly_url_is_named_as_such(cli: Cli, answer: bytes):
    with answering(answer) as url:
        answered = cli("key", "list", DAYFLY_URL=url, DAYFLY_API_KEY="k")
    assert "DAYFLY_URL points to another program: correct it, or unset it" in answered.err
    assert "dayfly down" not in answered.err


def test_no_server_at_dayfly_url_is_not_started_by_up(cli: Cli):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    answered = cli("sandbox", "list", DAYFLY_URL=f"http://127.0.0.1:{port}")
    assert answered.code == 6
    assert "DAYFLY_URL points there: correct it, or unset it" in answered.err


@pytest.mark.parametrize(
    "address", ["http://[::1", "http://a b:80", "http://z\u00fcrich..:80", "ftp://a:80", "http://:80"]
)
def test_malformed_server_address_is_refused(cli: Cli, address: str):
    refused(cli("sandbox", "list", DAYFLY_URL=address), 2, "is not the address of a server; write http://host:port")


def test_early_refusal_of_large_body_is_reported():
    """A server refuses a body that is too long so. It closes with the rest unread, which breaks our sending."""
    refusal = b'{"error": "the body is longer than 7 bytes"}'
    head = f"HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: {len(refusal)}\r\n\r\n"
    with answering(head.encode() + refusal) as url:
        client = ServerClient(Address(url, "key"))
        with pytest.raises(RefusedError, match="the body is longer than 7 bytes") as refused_:
            client.put("sandboxes", "big", body={"text": "x" * (32 << 20)})
    assert (refused_.value.status, refused_.value.code) == (413, 1)


def test_internal_error_names_its_crash_file(cli: Cli, fake: Fake):
    fake.say("GET", "sandboxes", [{"name": "no status, no spec"}])
    done = cli("sandbox", "list")
    refused(done, 1, "internal error, KeyError", str(cli.home / "crash-"))
    (crash,) = cli.home.glob("crash-*.txt")
    assert "Traceback" in crash.read_text()


def test_malformed_names_are_refused_without_a_request(cli: Cli, fake: Fake):
    for arguments in (
        ("sandbox", "get"),
        ("sandbox", "delete"),
        ("logs",),
        ("why",),
        ("env",),
        ("abandon", "--reason=x"),
    ):
        refused(cli(*arguments, "z\u00fcrich"), 2, '"z\u00fcrich" is not a sandbox name', "letters, digits")
        refused(cli(*arguments, "../clusters"), 2, "is not a ")
    refused(cli("plugin", "get", "\u732b"), 2, "is not a plugin name")
    refused(cli("plugin", "get", "cat@one"), 2, "is not a version")
    assert fake.asked == []


def test_an_argument_that_is_no_text_is_the_server_s_to_refuse(cli: Cli, fake: Fake):
    """As a shell gives a file's name that is not in UTF-8."""
    fake.say("GET", "sandboxes", {"error": "so it is"}, status=400)
    fake.say("DELETE", "keys/%3F", {"error": "so it is"}, status=404)
    refused(cli("sandbox", "list", "-l", "a=\udcff"), 2, "so it is")
    refused(cli("key", "delete", "\udcff"), 3, "so it is")


def test_status_elsewhere_omits_the_process_of_the_home(cli: Cli, fake: Fake):
    fake.say("GET", "sandboxes", [])
    url = (cli.home / "url").read_text().strip()
    elsewhere = {"DAYFLY_URL": url, "DAYFLY_API_KEY": "s3cret"}
    with (cli.home / "lock").open("w") as lock:
        lock.write("4711\n")
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert f"{url} (process 4711, dayfly 0.1.0)" in cli("status").out
        assert f"{url} (dayfly 0.1.0)" in cli("status", **elsewhere).out
        found = [json.loads(cli("status", "-o", "json", **more).out)["process"] for more in ({}, elsewhere)]
        assert found == [4711, None]


def test_suggested_commands_quote_names(cli: Cli, fake: Fake):
    """A name may hold whatever a shell takes for its own."""
    name, word = "east; echo $(id)", "'east; echo $(id)'"
    at = f"clusters/{quote(name)}"
    frozen = {"frozen": True, "compared": True, "since": "", "why": "", "onlyInCluster": [], "onlyHere": []}
    fake.say("PUT", at, {})
    fake.say("GET", f"{at}/tokens", [])
    fake.say("GET", f"{at}/thaw", frozen)
    assert cli("cluster", "add", name).err.endswith(f": dayfly cluster token create {word}\n")
    assert cli("cluster", "token", "list", name).err.endswith(f": dayfly cluster token create {word}\n")
    assert cli("cluster", "thaw", name).err.endswith(f": dayfly cluster thaw {word} --yes\n")
    assert ServerClient(Address("http://127.0.0.1:1", "k", name="a;b")).flags == " --server 'a;b'"


def test_status_counts_each_failed_reason(cli: Cli, fake: Fake):
    failed = [reason for reason in SECTIONS[Subject.RUN] if CATALOGUE[reason].severity is Severity.FAILED]
    boxes = [{"name": f"b{number}", "status": {"reason": reason}} for number, reason in enumerate(failed)]
    fake.say("GET", "sandboxes", boxes)
    assert json.loads(cli("status", "-o", "json").out)["counts"]["failed"] == len(failed) > 2


def test_plugin_delete_repeats_hidden_users_of_the_plugin(cli: Cli, fake: Fake):
    """A key with a scope does not see the users."""
    plugin = {"name": "db@1.0.0", "spec": {}, "status": {"resources": []}}
    fake.say("GET", "resource-plugins/db", plugin)
    fake.say("GET", "resource-plugins/db/versions", [plugin])
    said = "resource plugin db@1.0.0 is in use by sandbox(es): outside the scope of your key; delete them first"
    fake.say("DELETE", "resource-plugins/db", {"error": said}, status=400)
    refused(cli("plugin", "delete", "db"), 1, "still referenced by sandbox(es): outside the scope of your key")


def test_control_characters_do_not_reach_the_terminal(cli: Cli, fake: Fake):
    evil = "red \x1b[31m and\nnew line"
    status = {"ready": False, "reason": "ResourceFailed", "message": evil}
    sandbox = {
        "name": "demo",
        "spec": {"cluster": "local", "description": evil},
        "status": status,
        "createdAt": "2026-01-02T03:04:05Z",
    }
    fake.say("GET", "sandboxes", [sandbox])
    fake.say("GET", "sandboxes/demo", sandbox)
    fake.say("GET", "sandboxes/demo/why", {"subject": "demo", "reason": "X", "message": evil})
    for arguments in (("sandbox", "list"), ("sandbox", "get", "demo"), ("status",), ("why", "demo")):
        done = cli(*arguments)
        assert done.code == 0, done.err
        assert "red \\x1b[31m and new line" in done.out
        assert "\x1b" not in done.out


@pytest.mark.parametrize("encoding", ["ascii", "iso-8859-1", "utf-8"])
def test_data_is_whole_json_and_yaml_in_every_encoding(cli: Cli, fake: Fake, encoding: str):
    value = "caf\u00e9 \u20ac \U0001f600\non"
    data = [{"resource": "db", "step": "make", "output": "caf\u00e9", "value": value}]
    fake.say("GET", "sandboxes", data)
    for output, read in (("json", json.loads), ("yaml", yaml.safe_load)):
        line = [*COMMAND, "sandbox", "list", "-o", output]
        done = subprocess.run(line, env=cli.environment(PYTHONIOENCODING=encoding), capture_output=True)
        assert read(done.stdout.decode(encoding)) == data, done
        if encoding == "utf-8":
            assert "caf\u00e9 \u20ac" in done.stdout.decode()


def test_usage_errors_name_the_help_to_read(cli: Cli):
    assert cli().code == 2
    assert cli().err.startswith("Usage: dayfly")
    refused(cli("applly"), 2, 'no such command "applly"; did you mean: dayfly apply', "dayfly --help")
    refused(cli("sandbox", "get"), 2, "Missing argument 'NAME'", "dayfly sandbox get --help")
    refused(cli("sandbox", "delete"), 2, "either names, -f FILE", "dayfly sandbox delete --help")
    refused(cli("apply"), 2, "'-f'", "dayfly apply --help")
    refused(cli("apply", "-f", "x", "--timeout", "soon"), 2, "'soon' is not a duration")
    refused(cli("apply", "-f", "x", "--wait=perhaps"), 2, "perhaps")
    refused(cli("abandon", "demo"), 2, "--reason")
    refused(cli("abandon", "demo", "--reason", " "), 2, "--reason is empty")
    refused(cli("apply", "-f", "x", "--set", "novalue"), 2, 'got "novalue"')


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_are_silence_and_no_traceback(cli: Cli, fake: Fake, closed: str):
    fake.say("GET", "sandboxes", [])
    line = " ".join((*COMMAND, "sandbox list", closed))
    done = subprocess.run(["sh", "-c", line], env=cli.environment(), capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "" or done.stderr.startswith("There are no sandboxes")


@pytest.mark.parametrize(
    ("redirected", "code", "said"),
    [
        ("sandbox list -o json >/dev/full", 1, "dayfly: No space left on device; free some space and try again\n"),
        ("completion bash >/dev/full", 1, "dayfly: No space left on device; free some space and try again\n"),
        ("--version >/dev/full", 1, "dayfly: No space left on device; free some space and try again\n"),
        ("sandbox get demo 2>/dev/full", 3, ""),
        ("sandbox list 2>/dev/full", 0, ""),
    ],
)
def test_full_disk_keeps_exit_code_and_error_line(cli: Cli, fake: Fake, redirected: str, code: int, said: str):
    fake.say("GET", "sandboxes", [])
    environment = cli.environment()
    environment.pop("PYTHONUNBUFFERED", None)  # what is kept back is tried again while the interpreter ends
    line = f"{' '.join(COMMAND)} {redirected}"
    done = subprocess.run(["sh", "-c", line], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (code, said)


def test_os_errors_are_reported_without_errno(cli: Cli):
    cli.home.mkdir()
    (cli.home / "url").mkdir()
    refused(cli("sandbox", "list"), 5, f"{cli.home}/url: is a directory")
    (cli.home / "url").rmdir()
    (cli.home / "server.log").mkdir()
    done = cli("up", "--detach", "--port", "0")
    refused(done, 1, f"{cli.home}/server.log: Is a directory; fix that")
    assert "Errno" not in done.err


def test_logs_of_forgotten_sandbox_report_no_logs(cli: Cli, fake: Fake):
    """The server keeps the tombstone until the next sandbox ends, and that of the ledger for a week."""
    fake.say("GET", "sandboxes/old/report", {"uid": "u-1", "name": "old", "version": 0, "endpoints": []})
    fake.say("GET", "sandboxes/old/attempts", [])
    refused(cli("logs", "old"), 3, '"old" has no step, hook or fork; so it has no logs')
    refused(cli("logs", "-f", "old"), 3, "so it has no logs")


def test_an_unknown_plugin_is_said_with_where_to_look(cli: Cli, fake: Fake):
    fake.say("GET", "resource-plugins/cat", {"error": 'resource plugin "cat" not found'}, status=404)
    refused(cli("plugin", "get", "cat"), 3, '"cat" not found; see: dayfly plugin list')


def test_missing_embedded_file_is_named_as_typed(cli: Cli):
    for written, named in (("nofile", "nofile"), ("./nofile", "nofile"), ("/nofile", "/nofile")):
        cli.write("p.yaml", f"name: e\nspec:\n  create:\n  - {{name: a, script: '@{{embed: {written}}}'}}\n")
        refused(cli("plan", "-f", "p.yaml"), 2, "p.yaml:4:15", f"open {named}: no such file or directory")
