"""Schemathesis with the OpenAPI document: no answer is an internal error, and each is declared."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from tests.examples import external_services
from tests.selection import SELECTION
from tests.server import specs
from tests.server.client import KEY, serving
from tests.server.fake_host import FakeHost
from tests.server.test_leak_checks import FakeChecks, check, publish

from dayfly.link.envelope import TOKEN_HEADER
from dayfly.server.http import openapi, request_data
from dayfly.server.http.route_table import API, ROUTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.server.client import Client

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "unsupported_method",
)
# The number of random cases for each operation, in addition to boundary values.
EXAMPLES = 100 if SELECTION.is_complete else 15
SEED = SELECTION.seed
# The maximum of `wait` in these tests, which would otherwise consist of waiting.
WAIT_S = 0.02
# The objects for the operations: some stay, others are for deletions.
STAYS = {
    "sandboxes": "sb1",
    "routegroups": "all",
    "resourcepools": "small",
    "leakchecks": "items",
    "clusters": "far",
    "resource-plugins": "db",
    "workloads": "shop",
    "keys": "1",
    "tokens": "1",
}


class There(NamedTuple):
    """A server with one object of each kind, and a key."""

    client: Client
    token: str
    ids: dict[str, str]


@pytest.fixture
def there(tmp_path: Path, blank: Path, monkeypatch) -> Iterator[There]:
    monkeypatch.setattr(request_data, "MAX_WAIT_S", WAIT_S)
    host = FakeHost()
    host.pools = True
    host.leak_checks = FakeChecks()
    with serving(Path(shutil.copy(blank, tmp_path)), {"local": host}) as found:
        publish(found)
        for doomed in ("", "-2"):
            found.put(f"workloads/default/shop{doomed}", specs.baseline(f"shop{doomed}"))
            found.put(f"clusters/far{doomed}", None)
            found.put(f"resource-plugins/db{doomed}", specs.plugin(f"db{doomed}"))
            pool = {"cluster": "local", "plugin": f"db{doomed}", "params": {"size": "small"}, "ready": 1}
            found.put(f"resourcepools/small{doomed}", {"spec": pool})
            found.put(f"leakchecks/items{doomed}", check())
            found.put(f"sandboxes/sb1{doomed}", specs.sandbox())
            found.put(f"routegroups/all{doomed}", {"spec": {"match": {"label": {"key": "a", "value": "*"}}}})
        token = made(found, "clusters/far/tokens", {})
        ids = {"tokens": str(made(found, "clusters/far/tokens", {})["id"])}
        ids["keys"] = str(made(found, "keys", {"name": "ci", "role": "viewer"})["id"])
        yield There(found, token["token"], ids)


def made(client: Client, path: str, body: Any) -> Any:
    answer = client.call("POST", path, body)
    assert answer.status == 200, answer.body
    return answer.json


def document(ids: dict[str, str], chosen: list[str]) -> dict[str, Any]:
    """Return the document for these paths, with the names of existing objects as parameters."""
    found = openapi.document("1")
    paths = {path: found["paths"][path] for path in chosen}
    for path, said in paths.items():
        named = said.pop("parameters")
        for method, operation in said.items():
            takes_away = method == "delete" or path.endswith("/abandon")
            names = [{**each, "schema": _names(path, each["name"], ids, takes_away)} for each in named]
            operation["parameters"] = names + operation.get("parameters", [])
    return {**found, "paths": paths}


def _names(path: str, name: str, ids: dict[str, str], takes_away: bool) -> dict[str, Any]:
    match name:
        case "org":
            names = ["local"]
        case "namespace":
            names = ["default"]
        case "id":
            names = [ids["tokens" if "/tokens" in path else "keys"], "1"]
        case _ if path.startswith("/orgs/{org}/sessions/"):
            names = ["new"]  # only keys of agents begin sessions
        case _:
            family = path.split("/")[3]
            names = [f"{STAYS[family]}-2" if takes_away else STAYS[family], "new"]
    return {"type": "string", "enum": names}


def _tried(path: str) -> bool:
    """Streams do not end, and unsupported operations return 501: other tests cover them."""
    answers = [said.get("responses", {}).get("200") for said in DOCUMENT["paths"][path].values() if "responses" in said]
    return all(each is not None and "application/json" in each["content"] for each in answers)


DOCUMENT = openapi.document("1")
AGENTS = [path for path in ROUTES if path.startswith("/agent/")]
PEOPLE = [path for path in ROUTES if _tried(path) and path not in AGENTS]
PARTS = [AGENTS, *(PEOPLE[number::8] for number in range(8))]


@pytest.mark.builds("schemathesis")
@pytest.mark.timeout(900, func_only=True)
@pytest.mark.parametrize(
    "paths", SELECTION.sample(PARTS, len(PARTS), "addresses for Schemathesis"), ids=lambda each: each[0]
)
def test_all_answers_are_declared_and_no_internal_errors(there, tmp_path, played, paths):
    header = f"{TOKEN_HEADER}: {there.token}" if paths is AGENTS else f"signadot-api-key: {KEY}"
    (tmp_path / "openapi.json").write_text(json.dumps(document(there.ids, paths)))
    program = external_services.schemathesis() / "schemathesis"
    command = [program, "run", "openapi.json", f"--url=http://127.0.0.1:{there.client.port}{API}", "--no-color"]
    command += [f"--header={header}", f"--checks={','.join(CHECKS)}", f"--max-examples={EXAMPLES}"]
    command += ["--phases=coverage,fuzzing", "--continue-on-failure", "--request-timeout=60", f"--seed={SEED}"]
    command += ["--suppress-health-check=all", "--generation-database=none"]
    ended = subprocess.run(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert ended.returncode == 0, ended.stdout[-6000:]
    [cases] = re.findall(r"([\d,]+) generated", ended.stdout)
    count = int(cases.replace(",", ""))
    assert count > 10 * len(paths)
    played("requests that Schemathesis has made of the OpenAPI document", count)
