"""Plugins: canonical versions that never change once published and stay while sandboxes use them."""

from __future__ import annotations

import msgspec
import pytest
from tests.server import specs


def test_plugin_is_read_as_written_with_empty_lists_for_null(client):
    assert client.put("resource-plugins/db", specs.plugin()) == {}
    found = client.get("resource-plugins/db")
    assert found["name"] == "db"
    assert found["status"] == {"resources": []}
    assert found["createdAt"].endswith("Z")
    assert "T" in found["updatedAt"]
    create = found["spec"]["create"][0]
    assert create["script"] == "#!/bin/sh\necho -n h > /tmp/host\n"
    assert found["spec"]["delete"][0]["outputs"] == []
    del found["status"]
    found["name"] = "db@0.1.0"
    assert client.put("resource-plugins/db", found) == {}


@pytest.mark.parametrize(
    ("put", "canonical"),
    [("db@1", "db@1.0.0"), ("db@v1.2", "db@1.2.0"), ("db@0.0.0", "db"), ("db@1.0.0-rc.1", "db@1.0.0-rc.1")],
)
def test_versions_have_one_spelling(client, put, canonical):
    client.put("resource-plugins/db", specs.plugin(put))
    assert client.get("resource-plugins/db")["name"] == canonical
    asked = put.partition("@")[2]
    assert client.get(f"resource-plugins/db?version={asked}")["name"] == canonical


def test_a_published_version_never_changes(client):
    client.put("resource-plugins/db", specs.plugin("db@1.0"))
    before = client.get("resource-plugins/db")
    for name in ("db@1.0", "db@v1.0.0", "db@1"):
        for changes in ({}, {"description": "other"}):
            answer = client.call("PUT", "resource-plugins/db", specs.plugin(name, **changes))
            assert answer.status == 409
            assert "already exists" in answer.error
    assert client.get("resource-plugins/db") == before


def test_the_highest_version_is_the_latest(client):
    for version in ("1.9.0", "1.10.0", "1.10.0-rc.2", "0.1"):
        client.put("resource-plugins/db", specs.plugin(f"db@{version}"))
    client.put("resource-plugins/aa", specs.plugin("aa"))
    names = ["db@1.10.0", "db@1.10.0-rc.2", "db@1.9.0", "db@0.1.0"]
    assert [found["name"] for found in client.get("resource-plugins/db/versions")] == names
    assert [found["name"] for found in client.get("resource-plugins?version=all")] == ["aa", *names]
    for query in ("", "?version=", "?version=latest"):
        assert [found["name"] for found in client.get("resource-plugins" + query)] == ["aa", "db@1.10.0"]
        assert client.get("resource-plugins/db" + query)["name"] == "db@1.10.0"
    assert client.delete("resource-plugins/db") == {}
    assert client.get("resource-plugins/db")["name"] == "db@1.10.0-rc.2"
    assert client.delete("resource-plugins/db?version=v0.1") == {}
    assert [found["name"] for found in client.get("resource-plugins/db/versions")] == names[1:3]


def test_missing_plugin_is_404(client):
    assert client.get("resource-plugins/none/versions") == []
    for method in ("GET", "DELETE"):
        assert client.call(method, "resource-plugins/none").status == 404
        assert client.call(method, "resource-plugins/none?version=1.0").status == 404


@pytest.mark.parametrize("version", ["1.x", "all", "1.2.3.4", "01.2.3"])
def test_empty_version_in_query_is_refused(client, version):
    for method in ("GET", "DELETE"):
        answer = client.call(method, f"resource-plugins/db?version={version}")
        assert answer.status == 400
        assert "version" in answer.error
    assert client.call("GET", "resource-plugins?version=1.x").status == 400


def test_used_version_cannot_be_deleted(client, host):
    for name in ("db@1.0", "db@2.0"):
        client.put("resource-plugins/db", specs.plugin(name))
    one = specs.sandbox()
    one["spec"]["resources"][0]["plugin"] = "db@1.0"
    client.put("sandboxes/sb1", one)
    found = client.get("resource-plugins/db?version=1.0")
    assert found["status"]["resources"] == [{"name": "mydb", "sandbox": "sb1", "cluster": "local"}]
    answer = client.call("DELETE", "resource-plugins/db?version=1.0")
    assert answer.status == 400
    assert "in use" in answer.error
    assert "sb1" in answer.error
    assert client.delete("resource-plugins/db?version=2.0") == {}
    client.delete("sandboxes/sb1")
    assert client.call("DELETE", "resource-plugins/db").status == 400
    host.finish(next(iter(host.offers)))
    assert client.call("GET", "sandboxes/sb1").status == 404
    assert client.delete("resource-plugins/db") == {}


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"bogus": 1}, "spec.bogus"),
        ({"create": [{"name": "a", "script": "echo"}]}, "spec.create[0].script"),
        ({"create": [{"name": "a", "script": 5}]}, "spec.create[0].script"),
        ({"create": [], "delete": []}, "spec"),
        ({"create": []}, "spec.delete[0].inputs[0].valueFromStep"),
        ({"runner": {"podTemplateOverlay": "spec: {restartPolicy: Always}"}}, "spec.runner.podTemplateOverlay"),
    ],
)
def test_malformed_plugin_is_refused_with_its_place(client, change, path):
    answer = client.call("PUT", "resource-plugins/db", specs.plugin(**change))
    assert answer.status == 400
    assert answer.error.startswith(path + ": ")
    assert client.get("resource-plugins") == []


def test_cycle_is_refused_at_publication(client):
    def step(name, reads):
        source = {"name": reads, "output": "x"}
        output = {"name": "x", "valueFromPath": "/tmp/x"}
        return {
            "name": name,
            "script": "#!/bin/sh\n",
            "inputs": [{"name": "i", "valueFromStep": source}],
            "outputs": [output],
        }

    answer = client.call("PUT", "resource-plugins/db", specs.plugin(create=[step("a", "b"), step("b", "a")], delete=[]))
    assert answer.status == 400
    assert "b.x -> a.x -> b.x" in answer.error


def test_name_in_body_must_match_the_path(client):
    assert client.call("PUT", "resource-plugins/other", specs.plugin("db@1.0")).status == 400
    assert client.get("resource-plugins?version=all") == []


class TestReadme:
    """The README of a version is separate from its spec."""

    TOLD = "# A database\n\nWith <b>tables</b>.\n"

    def put(self, client, **changes):
        return client.call("PUT", "resource-plugins/db", {**specs.plugin("db@1.0"), **changes})

    def test_readme_is_returned_for_one_plugin_but_not_in_lists(self, client):
        assert self.put(client, readme=self.TOLD).status == 200
        assert client.get("resource-plugins/db")["readme"] == self.TOLD
        for path in ("resource-plugins", "resource-plugins?version=all", "resource-plugins/db/versions"):
            assert ["readme" in each for each in client.get(path)] == [False]

    def test_readme_can_be_changed_in_a_published_version(self, client):
        self.put(client)
        before = client.get("resource-plugins/db")
        assert "readme" not in before
        assert self.put(client, readme=self.TOLD).status == 200
        after = client.get("resource-plugins/db")
        assert after.pop("updatedAt") > before.pop("updatedAt")
        assert after == {**before, "readme": self.TOLD}
        assert self.put(client, readme=self.TOLD).status == 409, "the README is the same"
        assert self.put(client).status == 409, "a body without a README keeps it"
        other = specs.plugin(description="other")["spec"]
        assert self.put(client, readme="# Other", spec=other).status == 409
        assert client.get("resource-plugins/db")["readme"] == self.TOLD
        assert self.put(client, readme="").status == 200
        assert "readme" not in client.get("resource-plugins/db")
        said = [
            each["action"] for each in client.get("audit")["entries"] if each["object"] == "resource-plugins/db@1.0.0"
        ]
        assert said == ["publish", "describe", "describe"]

    @pytest.mark.parametrize(
        ("readme", "said"),
        [
            (5, "readme: must be a string, not a number"),
            (["a"], "readme: must be a string"),
            ("é" * 32 * 1024 + "x", "readme: has 65537 bytes, and a README at most 65536"),
            ("a\0", "readme: contains a NUL"),
        ],
        ids=("number", "list", "long", "nul"),
    )
    def test_invalid_readme_changes_nothing(self, client, readme, said):
        answer = self.put(client, readme=readme)
        assert (answer.status, said in answer.error) == (400, True), answer.error
        assert client.get("resource-plugins") == []
        assert self.put(client, readme="é" * 32 * 1024).status == 200

    def test_readme_does_not_change_sandbox_documents(self, client, host):
        self.put(client, readme=self.TOLD)
        client.put("sandboxes/sb1", specs.sandbox())
        self.put(client, readme="# Other")
        client.put("sandboxes/sb2", specs.sandbox())
        first, second = (msgspec.json.encode(offer.documents) for offer in host.offers.values())
        assert b"database" not in first + second
        assert b"Other" not in first + second
