"""The fields of a webhook: the resulting unit, and every error with its path."""

import pytest
from tests.compile.builders import run
from tests.spec.marked_text import load, refusal

from dayfly.cli import options
from dayfly.client.errors import DayflyError
from dayfly.compile import preview
from dayfly.execute.webhook.render import SenderSetup, as_exec, secret_variables
from dayfly.execute.work_order import CannotRenderError
from dayfly.spec import documents
from dayfly.spec.errors import SpecError
from dayfly.spec.lifecycle import UnitTimeouts
from dayfly.spec.run import NEVER

STEP = """\
name: p
spec:
  create:
  - name: make
    inputs:
    - {name: zone, valueFromSandbox: true}
    webhook:
"""
GOOD = """\
      method: POST
      url: https://dns.example.com/v1/records
"""


def step(more="", webhook=GOOD):
    """Return a plugin with one webhook step. `webhook` is its request, and `more` has other fields of the step."""
    return STEP + webhook + more


def field(line):
    """Return a webhook with one invalid line."""
    return step(webhook=GOOD + f"      {line}\n")


HERE = "spec.create[0].webhook"
REFUSED = {
    "a script too": (
        step("    script: |\n      #!/bin/sh\n").replace("- name: make", "- §name: make"),
        "spec.create[0]",
        "needs exactly one of script, command, webhook and object; script and webhook are given",
    ),
    "an unknown field": (field("§retries: 3"), f"{HERE}.retries", 'unknown field "retries"; known here: method, url'),
    "no url": (
        step(webhook="      method: POST\n").replace("webhook:", "§webhook:"),
        HERE,
        'missing required field "url"',
    ),
    "method": (step(webhook=GOOD.replace("method: POST", "§method: FETCH")), f"{HERE}.method", "is none of GET"),
    "a body of a GET": (
        step(webhook=GOOD.replace("POST", "GET") + "      §body: {}\n"),
        f"{HERE}.body",
        "a GET has no body",
    ),
    "an input that is none": (
        field("body: {name: {§$input: zones}}"),
        f'{HERE}.body.name["$input"]',
        'this step has no input "zones"; it has "zone"',
    ),
    "a variable that is none": (field("query: {a: {§$env: HOME}}"), f'{HERE}.query.a["$env"]', "is not one of DAYFLY_"),
    "a number in a query": (field("query: {§a: 1}"), f"{HERE}.query.a", "must be a string"),
    "another sign": (field("body: {§a: {$secret: x}}"), f"{HERE}.body.a", "write {$input: name} or {$env: NAME}"),
    "text around an input": (
        field("query: {§a: {$input: zone, prefix: x}}"),
        f"{HERE}.query.a",
        "write {$input: name} or {$env: NAME}",
    ),
    "an empty segment": (field("path: [§'']"), f"{HERE}.path[0]", "is not a path segment"),
    "a way up": (field("path: [a, §..]"), f"{HERE}.path[1]", "is not a path segment"),
    "a header of ours": (field("headers: {§host: other}"), f"{HERE}.headers.host", "is set by the sender itself"),
    "the key": (field("headers: {§idempotency-key: x}"), f"{HERE}.headers.idempotency-key", "sends this header"),
    "a header twice": (field("headers: {X-A: a, §x-a: b}"), f"{HERE}.headers.x-a", "appears twice"),
    "a header's name": (field("headers: {§'a b': c}"), f'{HERE}.headers["a b"]', "is not the name of a header"),
    "two lines": (field('headers: {§X: "a\\nb"}'), f"{HERE}.headers.X", "ASCII characters on one line"),
    "a Secret without key": (
        field("headers: {§X: {$secret: {name: a}}}"),
        f"{HERE}.headers.X",
        "write {$secret: {name: ..., key: ...}}",
    ),
    "a Secret's name": (
        field("headers: {X: {$secret: {§name: A_b, key: c}}}"),
        f'{HERE}.headers.X["$secret"].name',
        "is not the name of a Secret",
    ),
    "a status": (field("expect: {status: [§99]}"), f"{HERE}.expect.status[0]", "99 is not a status code of a response"),
    "both": (
        field("expect: {status: [500], failed: [§500]}"),
        f"{HERE}.expect.failed[0]",
        "500 is a success too",
    ),
    "both, where any success is expected": (
        field("expect: {failed: [503, §204]}"),
        f"{HERE}.expect.failed[1]",
        "204 is a success too; write in status which are",
    ),
    "both, where it begins a job": (
        field("expect: {status: [200], failed: [§202]}\n      poll: {until: {path: $.a, in: [b]}}"),
        f"{HERE}.expect.failed[0]",
        "202 is a success too; leave one of the two out",
    ),
    "a key in a header that says how long the body is": (
        field("§idempotencyKey: content-Length"),
        f"{HERE}.idempotencyKey",
        "is a header with another purpose; choose another name",
    ),
    "two Secrets in one variable": (
        step(
            webhook=GOOD + "      headers:\n"
            "        A: {$secret: {name: dns, key: api-token}}\n"
            "        B: {$secret: {name: dns, key: api-token}, prefix: 'Bearer '}\n"
            "        C: {§$secret: {name: dns-api, key: token}}\n"
        ),
        f'{HERE}.headers.C["$secret"]',
        "uses the variable DNS_API_TOKEN, as the key api-token of dns does; rename one",
    ),
    "poll without until": (field("§poll: {}"), f"{HERE}.poll", 'missing required field "until"'),
    "a path that is none": (
        field("poll: {until: {§path: '$.a[', in: [b]}}"),
        f"{HERE}.poll.until.path",
        "is not a JSONPath query",
    ),
    "a path without a root": (
        field("poll: {until: {§path: status, in: [b]}}"),
        f"{HERE}.poll.until.path",
        'begin it with "$"',
    ),
    "a number that no query can hold": (
        field("poll: {until: {§path: '$[?@.a == 1e400]', in: [b]}}"),
        f"{HERE}.poll.until.path",
        "it holds a number that is too large",
    ),
    "no value to compare with": (
        field("poll: {until: {path: $.a, §in: []}}"),
        f"{HERE}.poll.until.in",
        "has no value",
    ),
    "no certificate": (field("tls: {§ca: x}"), f"{HERE}.tls.ca", "contains no certificate"),
    "a time": (field("timeouts: {§connect: 5}").replace("5}", "'5'}"), f"{HERE}.timeouts.connect", "is not a duration"),
    "find of what may run twice": (
        step("    retry: {idempotent: true}\n", webhook=GOOD + "      §find: {}\n"),
        f"{HERE}.find",
        "is sent again instead",
    ),
    "grace": (step("    timeouts: {§grace: 5s}\n"), "spec.create[0].timeouts.grace", "cannot be cancelled"),
    "an input's variable": (
        step().replace("valueFromSandbox: true}", "valueFromSandbox: true, §as: {env: ZONE}}"),
        "spec.create[0].inputs[0].as",
        "leave as out",
    ),
    "an output's file": (
        step("    outputs: [{name: id, §valueFromPath: /tmp/id}]\n"),
        "spec.create[0].outputs[0].valueFromPath",
        "this step is a webhook; write valueFromJSONPath or valueFromHeader or valueFromStatus",
    ),
    "an output of nothing": (
        step("    outputs:\n    - §name: id\n"),
        "spec.create[0].outputs[0]",
        "needs exactly one of valueFromJSONPath, valueFromHeader, valueFromStatus; 0 are given",
    ),
    "an output's query": (
        step("    outputs: [{name: id, §valueFromJSONPath: id}]\n"),
        "spec.create[0].outputs[0].valueFromJSONPath",
        "is not a JSONPath query",
    ),
    "an output of ours": (
        step("    outputs: [{§name: location, valueFromHeader: X}]\n"),
        "spec.create[0].outputs[0].name",
        "every webhook already has this",
    ),
    "a script's output from an answer": (
        (
            "name: p\nspec:\n  create:\n  - name: a\n    script: '#!/bin/sh'\n"
            "    outputs: [{name: id, §valueFromStatus: true}]\n"
        ),
        "spec.create[0].outputs[0].valueFromStatus",
        "this step is a script; write valueFromPath",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_each_mistake_has_its_place(case):
    source, path, words = REFUSED[case]
    error = refusal(source)
    assert error.path == path
    assert words in str(error)


@pytest.mark.parametrize(
    "url",
    [
        "dns.example.com/v1",
        "ftp://dns.example.com/",
        "https://user@dns.example.com/",
        "https://dns.example.com/?a=b",
        "https://dns.example.com/#a",
        "https://dns.example.com/a/../b",
        "https://dns.example.com/%2e%2e/b",
        "https://dns.example.com/%zz",
        "https://dns.example.com:0/",
        "https://dns.example.com:65536/",
        "https://2130706433/",
        "https://0x7f.1/",
        "https://010.0.0.1/",
        "https://dns_example/",
        "https://-/",
        "https://dns.example.com\\@other/",
        "https://{zone}.example.com/",
        "https://" + "a" * 2048,
    ],
)
def test_ambiguous_url_is_refused(url):
    error = refusal(step(webhook=f"      method: POST\n      §url: {url!r}\n"))
    assert error.path == f"{HERE}.url"


def test_all_webhook_errors_are_reported_together():
    with pytest.raises(SpecError) as caught:
        load(step(webhook="      method: X\n      url: x\n      query: {a: 1}\n      tls: {ca: x}\n"))
    found = [caught.value, *caught.value.others]
    assert [each.path for each in found] == [f"{HERE}.{each}" for each in ("method", "url", "query.a", "tls.ca")]


PLUGIN = """\
name: dns
spec:
  create:
  - name: make
    inputs:
    - {name: zone, valueFromSandbox: true}
    outputs:
    - {name: id, valueFromJSONPath: $.id}
    - {name: tag, valueFromHeader: ETag}
    webhook:
      method: POST
      url: https://dns.example.com/v1/records
      path: [{$input: zone}]
      headers:
        Authorization: {$secret: {name: dns, key: token}, prefix: "Bearer "}
      body: {owner: {$env: DAYFLY_RESOURCE_ID}}
  - name: wait
    inputs:
    - {name: at, valueFromStep: {name: make, output: location}}
    webhook:
      method: GET
      url: https://dns.example.com/
      query: {at: {$input: at}}
      poll: {until: {path: $.done, in: [true]}}
  delete:
  - name: drop
    inputs:
    - {name: id, valueFromStep: {name: make, output: id}}
    timeouts: {run: 1m}
    webhook: {method: DELETE, url: "https://dns.example.com/v1/records", path: [{$input: id}]}
"""
BOX = "name: box\nspec:\n  cluster: local\n  resources:\n  - {name: db, plugin: dns, params: {zone: a}}\n"


def test_webhook_becomes_a_unit_with_request_and_deadlines():
    document = run(BOX, PLUGIN).documents[0]
    make, wait = document.pre_start
    (drop,) = document.post_stop
    assert {unit.kind for unit in (make, wait, drop)} == {"webhook"}
    assert make.exec is None
    assert make.webhook.request["path"] == [{"$input": "zone"}]
    assert make.webhook.env["DAYFLY_SANDBOX_NAME"] == "box"
    assert make.inputs[0].as_.env == "DAYFLY_INPUT_ZONE"
    assert [(output.json_path, output.header) for output in make.outputs] == [("$.id", ""), ("", "ETag")]
    # A sent request cannot be cancelled, so an end of the step waits for its time limit.
    assert make.timeouts == UnitTimeouts(run_ms=300_000, grace_ms=300_000)
    assert (wait.timeouts.run_ms, drop.timeouts.grace_ms) == (3_600_000, 60_000)
    assert drop.retry.idempotent


def test_plan_shows_webhook_request_and_outputs():
    (event, _) = preview(run(BOX, PLUGIN)).events
    line = event.waves[0][0]
    assert line.request == "POST https://dns.example.com/v1/records"
    assert [(each.name, each.env) for each in line.inputs] == [("zone", "")]
    assert [each.path for each in line.outputs] == ["$.id of the answer", "header ETag of the answer"]


def test_body_may_contain_null():
    """A server may interpret such a path segment as a request for the parent."""
    wish = load(field("body: {note: null, list: [null], deep: {a: null}, at: {$input: zone}}"))
    body = {"note": None, "list": [None], "deep": {"a": None}, "at": {"$input": "zone"}}
    assert wish.spec.create[0].webhook.body == body
    assert documents.from_wire(documents.export(wish), "ResourcePlugin") == wish
    assert load(field("body: null")).spec.create[0].webhook.body is None


def test_a_plugin_comes_back_as_it_was_written():
    wish = load(PLUGIN)
    assert documents.from_wire(documents.export(wish), "ResourcePlugin") == wish


def test_sender_order_has_no_secrets_and_parsed_paths():
    make = run(BOX, PLUGIN).documents[0].pre_start[0]
    place = SenderSetup(command=("python3",), folder="/f", image="own", allowed=frozenset({"dns.example.com:443"}))
    running = as_exec(make, place, run="u", name="db/make", record=NEVER, absent=[], sensitive=[])
    assert (running.kind, running.exec.command, running.exec.image) == ("webhook", ("python3",), "own")
    [variable] = running.exec.pod_template["spec"]["containers"][0]["env"]
    assert variable == {"name": "DNS_TOKEN", "valueFrom": {"secretKeyRef": {"name": "dns", "key": "token"}}}
    assert '"steps":{"$.id":["id"]}' in running.exec.env["DAYFLY_WEBHOOK"]
    assert '"allowed":true' in running.exec.env["DAYFLY_WEBHOOK"]
    assert [output.path for output in running.outputs] == [
        "/f/webhook.out.id",
        "/f/webhook.out.tag",
        "/f/webhook.location",
        "/f/webhook.definite-answer",
    ]


def test_request_without_headers_reads_no_secret():
    make = run(BOX, PLUGIN).documents[0].pre_start[0]
    assert secret_variables(make) == ["DNS_TOKEN"]
    del make.webhook.request["headers"]
    assert secret_variables(make) == []
    running = as_exec(
        make, SenderSetup(command=("p",), folder="/f"), run="u", name="n", record=NEVER, absent=[], sensitive=[]
    )
    assert running.exec.pod_template is None


@pytest.mark.parametrize(("server", "allowed"), [("[::1]:80", "true"), ("[::2]:80", "false"), ("::1:80", "true")])
def test_server_is_allowed_by_its_address(server, allowed):
    """As in a URL, with or without brackets."""
    make = run(BOX, PLUGIN.replace("https://dns.example.com/v1/records", "http://[::1]/v1")).documents[0].pre_start[0]
    place = SenderSetup(command=("python3",), folder="/f", allowed=frozenset({server}))
    running = as_exec(make, place, run="u", name="db/make", record=NEVER, absent=[], sensitive=[])
    assert f'"allowed":{allowed}' in running.exec.env["DAYFLY_WEBHOOK"]


def test_unchecked_document_cannot_redirect_a_webhook():
    make = run(BOX, PLUGIN.replace("https://dns.example.com/v1/records", "https://dns.example.com/"))
    unit = make.documents[0].pre_start[0]
    unit.webhook.request["url"] = "https://user@dns.example.com/"
    with pytest.raises(CannotRenderError, match="is not a plain http or https URL"):
        as_exec(
            unit, SenderSetup(command=("p",), folder="/f"), run="u", name="n", record=NEVER, absent=[], sensitive=[]
        )


@pytest.mark.parametrize("wrong", ["dns", "dns:", ":80", "dns:0", "dns:65536", "https://dns:443", "*.dns:443", "a b:1"])
def test_allowed_server_is_a_host_and_a_port(wrong):
    with pytest.raises(DayflyError, match="write --allow-webhook HOST:PORT"):
        options.parse_webhook_servers(("dns:443", wrong))


def test_allowed_servers_ignore_case():
    assert options.parse_webhook_servers(("DNS.Internal:443", "[::1]:80")) == {"dns.internal:443", "[::1]:80"}
