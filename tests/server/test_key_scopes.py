"""Keys with a scope: every route x role x scope x organisation, and streams, specs and older servers.

The cases come from the route table. Objects outside a scope have canaries in their names, keys and labels, which must
not be in any answer to such a key, and they must not change.
"""

from __future__ import annotations

import asyncio
import json
import shutil

import pytest
from tests.server import databases, specs
from tests.server.client import Client
from tests.server.databases import sql
from tests.server.test_changes import listening, soon  # noqa: F401 # a fixture for all here
from tests.server.test_rights import CASES, OURS, STREAMS, THEIRS, World

from dayfly.server.access import scopes
from dayfly.server.access.callers import Role
from dayfly.server.access.scopes import WHOLE, Reach
from dayfly.server.admin import keys
from dayfly.server.admin.audit import Actor
from dayfly.server.db.store import Store
from dayfly.server.db.tables import ended_route_groups
from dayfly.server.http.route_table import ROUTES, reach
from dayfly.spec.errors import SpecError

SCOPES = {
    "name": ["name:ci-*"],
    "cluster": ["cluster:loc*"],
    "both": ["cluster:local", "name:ci-?", "name:ci-o*"],
    "plugin": ["plugin:db"],
    "another plugin": ["plugin:nothing*"],
    "name and plugin": ["name:ci-*", "plugin:db"],
}
# Objects of the same organisation outside the scope, by name or by cluster.
BY_NAME, BY_CLUSTER, CLUSTER = "out7name", "ci-out7", "far7"
NOBODY = "ci-9"
FEATURE = {"feature": "one"}


class Scoped(World):
    """Two organisations, two sandboxes and groups outside each scope, and keys for each scope."""

    async def fill(self):
        await super().fill()
        self.scoped = {}
        for title, terms in SCOPES.items():
            scope = scopes.parse(terms)
            for role in Role:
                make = lambda rows, role=role, scope=scope: keys.create(  # noqa: E731
                    rows, "scoped", role, who=Actor(OURS, "t", "t"), scope=scope
                )
                self.scoped[title, role] = (await self.store.for_org(OURS).write(make))[0]
        admin, at = self.keys[OURS, Role.ADMIN], f"/orgs/{OURS}"
        using = [{"name": "mydb", "plugin": "db", "params": {"size": "s"}}]
        said = [await self.call(admin, "PUT", f"{at}/clusters/{CLUSTER}")]
        said += [await self.call(admin, "PUT", f"{at}/resource-plugins/db", specs.plugin())]
        said += [await self.call(admin, "POST", f"{at}/clusters/{CLUSTER}/tokens", {})]
        for name, cluster in ((BY_NAME, "local"), (BY_CLUSTER, CLUSTER), ("ci-1", "local")):
            wish = specs.empty(cluster=cluster, labels=FEATURE, description=f"d-{name}", resources=using)
            said += [await self.call(admin, "PUT", f"{at}/sandboxes/{name}", wish)]
            group = {"spec": {"cluster": cluster, **MATCH}}
            said += [await self.call(admin, "PUT", f"{at}/routegroups/{name}", group)]
        assert {status for status, _ in said} == {200}, said
        self.ours = {"tokens": said[2][1]["id"], "keys": self.keys[OURS, Role.VIEWER].split("_")[1]}
        self.routing_keys = {each[1]["name"]: each[1]["routingKey"] for each in said[3:7:2]}

    def format_path(self, path, name, org=OURS):
        names = {"{org}": org, "{namespace}": "default", "{id}": self.ours["tokens" if "tokens" in path else "keys"]}
        names["{name}"] = CLUSTER if "clusters" in path else "db" if "plugins" in path else name
        for word, value in names.items():
            path = path.replace(word, value)
        return path

    def secrets(self, title):
        """Return names, keys and clusters that a key with that scope must not see."""
        names = {"name": [BY_NAME], "name and plugin": [BY_NAME], "cluster": [BY_CLUSTER]}
        hidden = names.get(title, [BY_NAME, BY_CLUSTER])
        return [*hidden, *(self.routing_keys[each] for each in hidden), *([CLUSTER] if "cluster" in title else [])]

    async def outside(self):
        """Read all stored objects outside of the scopes with their versions, and all plugins, keys and clusters."""
        admin, found = self.keys[OURS, Role.ADMIN], []
        for name in (BY_NAME, BY_CLUSTER):
            for kind in ("sandboxes", "routegroups"):
                status, body = await self.call(admin, "GET", f"/orgs/{OURS}/{kind}/{name}")
                found.append((status, body["spec"], body["updatedAt"]))
        for kind in ("keys", "clusters", "resource-plugins", "workloads", f"clusters/{CLUSTER}/tokens"):
            _, body = await self.call(admin, "GET", f"/orgs/{OURS}/{kind}")
            found.append([{k: v for k, v in each.items() if k != "lastUsedAt"} for each in body])
        return found


MATCH = {"match": {"label": {"key": "feature", "value": "*"}}}
LOCAL = {"spec": {"cluster": "local", **MATCH}}
BODIES = {
    "PUT /orgs/{org}/sandboxes/{name}": specs.empty(),
    "PUT /orgs/{org}/sandboxes/{name}/lease": {"seconds": 5},
    "PUT /orgs/{org}/routegroups/{name}": {"spec": {"cluster": "local", **MATCH}},
    "PUT /orgs/{org}/resource-plugins/{name}": specs.plugin(),
    "PUT /orgs/{org}/workloads/{namespace}/{name}": specs.baseline(),
    "POST /orgs/{org}/keys": {"name": "n", "role": "viewer"},
}
ENDING = {"reason": "r"}


@pytest.fixture(params=databases.FILE_FIRST)
def first(request, tmp_path, blank):
    """An empty store: SQLite, and in the proof also PostgreSQL."""
    return shutil.copy(blank, tmp_path) if request.param == "sqlite" else request.getfixturevalue("postgres").fresh()


@pytest.mark.slow
async def test_every_route_for_every_role_scope_and_organisation(first, played):
    store = Store.open(first)
    try:
        world = Scoped(store)
        await world.fill()
        before, tried = await world.outside(), 0
        for path, method, least in CASES:
            if least is None or path.startswith("/agent/"):
                continue
            for (title, role), key in world.scoped.items():
                if path in STREAMS and "{name}" not in path:
                    continue
                if "{org}" in path:
                    at = world.format_path(path, BY_NAME, THEIRS)
                    assert (await world.call(key, method, at, ENDING))[0] == 404, (title, role, method, at)
                for name in (BY_NAME, BY_CLUSTER):
                    if "{name}" in path or name == BY_NAME:
                        tried += await judged(world, path, method, least, title, role, key, name)
        assert await world.outside() == before, "nothing outside of the scopes was changed"
        played("routes for a role, a scope and an organisation", tried)
        assert tried > 1200
    finally:
        store.close()


async def judged(world, path, method, least, title, role, key, name):
    """Send a request for an object outside of the scope, if the path names one."""
    at = world.format_path(path, name)
    if path in STREAMS and "{name}" in path and may(title, name):
        return 0  # it never ends
    if method != "GET" and "{name}" in path and reach(path, method) is Reach.RUNS and may(title, name):
        return 0  # it is within this scope
    status, answer = await world.call(key, method, at, BODIES.get(f"{method} {path}", ENDING))
    case, text = (title, role.api_name, method, at, status, answer), json.dumps(answer)
    told = [each for each in world.secrets(title) if each in text and each not in at]
    assert told == [], case
    kind = reach(path, method)
    if role < least:
        assert status == 403, case
    elif kind is Reach.WHOLE:
        assert (status, "outside the scope" in answer["error"]) == (403, True), case
    elif kind is Reach.PLUGIN:
        # It is published and in use.
        refused = 409 if method == "PUT" else 400
        assert status == (refused if title in ("plugin", "name and plugin") else 403), case
    elif kind is Reach.RUNS and title in ("plugin", "another plugin"):
        assert status == 403, case
    elif kind is Reach.RUNS and "{name}" in path and hides(title, name):
        if method == "PUT" and path.endswith("{name}"):
            assert (status, "outside the scope" in answer["error"]) == (403, True), case
        elif name == BY_NAME:
            assert status == 404, case  # the scope excludes the name, whether the object exists or not
        else:
            # The answer must be the same as for an object that does not exist.
            none, nothing = await world.call(
                key, method, world.format_path(path, NOBODY), BODIES.get(f"{method} {path}", ENDING)
            )
            assert (status, answer["error"]) == (none, nothing["error"]), case
            assert status in (400, 404), case
    elif kind is Reach.COMMON and "clusters" in path and "cluster:" in " ".join(SCOPES[title]) and "{name}" in path:
        assert status == 404, case
    return 1


def may(title, name):
    return scopes.parse(SCOPES[title]).has_runs and not hides(title, name)


def hides(title, name):
    by_name = "name:" in " ".join(SCOPES[title]) and name == BY_NAME
    return by_name or ("cluster:" in " ".join(SCOPES[title]) and name == BY_CLUSTER)


def scoped(client, *terms, role="member"):
    answer = client.call("POST", "keys", {"name": "ci", "role": role, "scope": list(terms)})
    assert answer.status == 200, answer.body
    return Client(client.port, client.store, answer.json["key"])


def test_scoped_key_shows_its_scope_and_works_within(client):
    ci = scoped(client, "name:ci-*", "cluster:local")
    (shown,) = client.get("keys")
    assert (shown["role"], shown["scope"]) == ("member", ["cluster:local", "name:ci-*"])
    assert ci.get("/api/v2/orgs/")["user"] == {"role": "member", "scope": ["cluster:local", "name:ci-*"]}
    ci.put("sandboxes/ci-1", specs.empty())
    client.put("sandboxes/mine", specs.empty())
    assert [each["name"] for each in ci.get("sandboxes")] == ["ci-1"]
    assert ci.call("PUT", "sandboxes/mine", specs.empty()).error == (
        '"mine" is outside the scope of your key (cluster:local, name:ci-*)'
    )
    assert ci.call("DELETE", "sandboxes/mine").error == ci.call("DELETE", "sandboxes/none").error
    assert ci.delete("sandboxes/ci-1") == {}
    assert client.get("sandboxes/mine")["name"] == "mine"
    made = [each["object"] for each in client.get("audit")["entries"] if each["key"] == shown["id"]]
    assert made == ["sandboxes/ci-1", "sandboxes/ci-1"], "the audit log only has its own actions"


def test_audit_log_contains_the_scope_of_a_key(client):
    digests = set()
    for scope in ({}, {"scope": ["name:a"]}, {"scope": ["name:b"]}):
        client.call("POST", "keys", {"name": "ci", "role": "member", **scope})
        digests.add(client.get("audit")["entries"][-1]["spec"])
    assert len(digests) == 3


def test_cluster_key_can_only_create_in_its_clusters(client):
    client.put("clusters/far", None)
    client.put("sandboxes/sb1", specs.empty(cluster="far"))
    near = scoped(client, "cluster:local")
    assert 'cluster "far" is outside the scope' in near.call("PUT", "sandboxes/sb2", specs.empty(cluster="far")).error
    taken = near.call("PUT", "sandboxes/sb1", specs.empty())
    assert (taken.status, "lives in another cluster" in taken.error) == (403, True)
    for spec in (MATCH, {"cluster": "far", **MATCH}):
        assert near.call("PUT", "routegroups/g", {"spec": spec}).status == 403
    wrong = scoped(client, "cluster:lo*").call("PUT", "sandboxes/sb3", specs.empty(cluster="lost"))
    assert "this server has local;" in wrong.error, "the error does not list other clusters"
    assert [each["name"] for each in near.get("clusters")] == ["local"]
    client.put("routegroups/everywhere", {"spec": MATCH})
    assert near.get("routegroups") == [], "a group of all clusters is outside the scope of a cluster"
    assert near.call("GET", "routegroups/everywhere").status == 404


def test_cluster_key_cannot_see_an_ended_group_of_all_clusters(client, host):
    """The run of the group is in one of the clusters; its tombstone stays as invisible as the group was."""
    near = scoped(client, "cluster:local")
    client.put("routegroups/everywhere", {"spec": MATCH})
    near.put("routegroups/own", LOCAL)
    for name in ("everywhere", "own"):
        client.delete(f"routegroups/{name}")
        host.finish(next(uid for uid, offer in host.offers.items() if offer.name == name))
        assert client.call("GET", f"routegroups/{name}").status == 404
    for path in ("report", "history", "attempts", "why"):
        assert client.call("GET", f"routegroups/everywhere/{path}").status == 200
        assert near.call("GET", f"routegroups/own/{path}").status == 200
        assert near.call("GET", f"routegroups/everywhere/{path}").status == 404
    assert near.call("DELETE", "routegroups/own").status == 200, "a repeated request gets the same answer"
    assert near.call("DELETE", "routegroups/everywhere").status == 404


def test_attention_hides_all_cluster_groups_from_a_cluster_key(client):
    near = scoped(client, "cluster:local")
    for name, wish in (("everywhere", {"spec": MATCH}), ("own", LOCAL)):
        client.put(f"routegroups/{name}", wish)
        assert client.call("POST", f"routegroups/{name}/abandon", {"reason": "it is gone", "force": True}).status == 200
        assert client.call("GET", f"routegroups/{name}").status == 404
    assert {each["group"] for each in client.get("attention")} == {"everywhere", "own"}
    assert [each["group"] for each in near.get("attention")] == ["own"]


def test_cluster_key_cannot_see_groups_without_recorded_scope(client):
    """An older server did not record whether it was a group of all clusters."""
    row = {"routing_key": "k", "cluster": "local", "created_at": 1, "ended_at": 2**50, "name": "g", "uid": "u"}
    asyncio.run(client.store.for_org("local").write(lambda rows: rows.insert(ended_route_groups, row)))
    assert client.call("GET", "routegroups/g/report").status == 200
    assert scoped(client, "cluster:local").call("GET", "routegroups/g/report").status == 404
    assert scoped(client, "name:g").call("GET", "routegroups/g/report").status == 200


def test_group_shows_a_scoped_key_only_its_own_sandboxes(client):
    for name in ("ci-1", "secret7"):
        client.put(f"sandboxes/{name}", specs.empty(labels=FEATURE))
    ci = scoped(client, "name:ci-*")
    made = ci.put("routegroups/ci-g", {"spec": {"cluster": "local", **MATCH}})
    assert (made["status"]["matchedSandboxes"], made["status"]["matched"]) == (["ci-1"], 1)
    assert client.get("routegroups/ci-g")["status"]["matched"] == 2
    for path in ("routegroups", "routegroups/ci-g", "routegroups/ci-g/report", "routegroups/ci-g/why", "attention"):
        assert "secret7" not in json.dumps(ci.get(path)), path
    assert ci.get("routegroups?sandbox=secret7") == []
    assert [each["name"] for each in ci.get("routegroups?sandbox=ci-1")] == ["ci-g"]


def test_stream_omits_objects_outside_the_key_scope(client, host):
    for name in ("ci-1", "secret7"):
        client.put(f"sandboxes/{name}", specs.empty(labels=FEATURE))
    client.put("routegroups/ci-g", {"spec": {"cluster": "local", **MATCH}})
    client.put("routegroups/secret7g", {"spec": {"cluster": "local", **MATCH}})
    ci = scoped(client, "name:ci-*")
    heard = []
    with listening(client, key=ci.key) as listener:
        while not heard or heard[-1][1] != "synced":
            heard.append(listener.next())
        assert [(kind, data.get("name")) for _, kind, data in heard[:2]] == [
            ("changed", "ci-1"),
            ("group-changed", "ci-g"),
        ]
        client.put("sandboxes/secret8", specs.empty(labels=FEATURE))
        client.delete("sandboxes/secret8")
        client.put("sandboxes/ci-2", specs.empty(labels=FEATURE))
        # Both: a group may be polled with a sandbox that did not exist when sandboxes were polled.
        while not all(any(tells(*each, "ci-2") for _, *each in heard) for tells in (_tells_of, _matches)):
            heard.append(listener.next())
        (uid,) = [uid for uid, offer in host.offers.items() if offer.name == "ci-2"]
        client.delete("sandboxes/ci-2")
        host.finish(uid)
        client.call("GET", "sandboxes/ci-2")
        while heard[-1][1] != "deleted":
            heard.append(listener.next())
    assert heard[-1][2] == {"name": "ci-2"}
    assert "secret" not in json.dumps([data for _, _, data in heard])
    last = heard[0][0] or heard[-2][0]
    with listening(client, key=ci.key, last=last or "1-0") as listener:
        assert "secret" not in json.dumps(listener.until("synced" if not last else "deleted"))


def _tells_of(kind, data, name):
    return kind == "changed" and data["name"] == name


def _matches(kind, data, name):
    return kind == "group-changed" and name in data["status"]["matchedSandboxes"]


def test_publishing_key_has_access_only_to_its_plugins(client):
    client.put("resource-plugins/db", specs.plugin())
    client.put("sandboxes/secret7", specs.sandbox())
    pub = scoped(client, "plugin:db", role="admin")
    pub.put("resource-plugins/db", specs.plugin("db@1.0.0"))
    assert pub.call("PUT", "resource-plugins/queue", specs.plugin("queue")).status == 403
    assert pub.call("GET", "sandboxes").error == "GET here is outside the scope of your key (plugin:db)"
    assert pub.call("POST", "keys", {"name": "mine", "role": "admin"}).status == 403
    assert pub.call("PUT", "clusters/mine", {}).status == 403
    found = pub.call("DELETE", "resource-plugins/db?version=0.0.0").error
    assert ("in use" in found, "secret7" in found) == (True, False)
    assert pub.get("resource-plugins/db?version=0.0.0")["status"] == {"resources": []}
    assert pub.delete("resource-plugins/db?version=1.0.0") == {}


@pytest.mark.parametrize(
    ("scope", "says"),
    [
        ("name:a", "scope: must be a list"),
        (["name:a"] * 17, "1 to 16 terms"),
        ([], "leave the field out for a key without a scope"),
        (None, "leave the field out for a key without a scope"),
        ({}, "1 to 16 terms"),
        ([None], "is not a term of a scope"),
        ([""], "is not a term of a scope"),
        (["label:a"], 'scope[0]: "label:a" is not a term of a scope'),
        (["name:"], "is not a term of a scope"),
        ([7], "is not a term of a scope"),
        (["name:[a"], "scope[0]:"),
        (["cluster:a\nb"], "is not a term of a scope"),
        (["name:a", "plugin:db"], "plugin: needs the role admin"),
    ],
)
def test_invalid_scope_creates_no_key(client, scope, says):
    answer = client.call("POST", "keys", {"name": "ci", "role": "member", "scope": scope})
    assert (answer.status, says in answer.error) == (400, True), answer.error
    assert client.get("keys") == []


def test_only_missing_expiry_creates_key_without_expiry(client):
    for seconds in (None, 0, "", []):
        answer = client.call("POST", "keys", {"name": "ci", "role": "member", "expiresInSeconds": seconds})
        assert (answer.status, "expiresInSeconds" in answer.error) == (400, True)
    assert client.get("keys") == []


def test_empty_scope_is_refused():
    assert WHOLE.includes_name("x")
    assert WHOLE.allows_publishing("x")
    assert scopes.parse(["name:a", "cluster:b"]).terms == ["cluster:b", "name:a"]
    for nothing in (None, [], {}, ""):
        with pytest.raises(SpecError):
            scopes.parse(nothing)


def test_new_path_is_closed_to_scoped_keys_by_default():
    for path, of in ROUTES.items():
        for method, operation in of.items():
            writes = method != "GET" or operation.role is not Role.VIEWER
            if reach(path, method) is Reach.COMMON and writes:
                assert path in ("/page/links", "/page/session"), (method, path)
    ROUTES["/orgs/{org}/new"] = {"POST": ROUTES["/orgs/{org}/keys"]["POST"]}
    try:
        assert reach("/orgs/{org}/new", "POST") is Reach.WHOLE
    finally:
        del ROUTES["/orgs/{org}/new"]


@pytest.mark.parametrize(
    "change",
    [
        {"scope": ""},
        {"scope": '{"role": "member", "scope": ["label:new"]}'},
        {"scope": '{"role": "member", "scope": [], "more": 1}'},
        {"scope": '{"role": "member", "scope": []}'},
        {"scope": '{"role": "owner", "scope": ["name:a"]}'},
        {"role": "member"},
    ],
)
def test_unreadable_scope_grants_nothing(client, change):
    """A newer server has stored it, or a person has edited the database."""
    ci = scoped(client, "name:ci-*")
    ci.get("sandboxes")

    def edit(rows):
        rows.execute(rows.update(keys.api_keys).values(**change))

    asyncio.run(client.store.for_org("local").write(edit))
    assert ci.call("GET", "sandboxes").status == 401
    assert client.call("GET", "keys").status == 200


def test_downgrade_to_schema_without_scopes_deletes_scoped_keys(place):
    """Otherwise they would have access to the whole organisation."""
    store = Store.open(place)

    def make(rows):
        return [
            keys.create(rows, "k", Role.ADMIN, who=Actor("acme", "t", "t"), scope=scope)[1]
            for scope in (WHOLE, scopes.parse(["name:a"]))
        ]

    whole, _ = asyncio.run(store.for_org("acme").write(make))
    store.close()
    Store.migrate(place, "0007")
    store = Store.open(place)
    left = asyncio.run(
        store.for_org("acme").read(lambda rows: list(rows.execute(rows.select(keys.api_keys.c.id)).scalars()))
    )
    store.close()
    assert left == [whole]


def test_server_without_scopes_rejects_scoped_keys(client):
    """The older server only reads the role, and does not know this one."""
    scoped(client, "name:ci-*", role="admin")
    ((role,),) = sql(client.store, "SELECT role FROM api_keys")
    assert role not in keys.ROLES
