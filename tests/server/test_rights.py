"""Every route of the table x every role x organisation: forbidden requests fail without information about others.

The cases come from the route table, so a new route is tested automatically.
"""

from __future__ import annotations

import json
import time

from tests.server import specs
from tests.server.client import KEY
from tests.server.fake_host import FakeHost
from tests.server.lossy_link import call

from dayfly.server.access import callers
from dayfly.server.access.callers import Role
from dayfly.server.admin import keys
from dayfly.server.admin.audit import Actor
from dayfly.server.app import create_app
from dayfly.server.db.store import Store
from dayfly.server.http.route_table import API, ROUTES

OURS, THEIRS = "ours", "theirs"
# A canary in each object of the other organisation, which must not be in any other answer.
CANARY = "canary7"
# Reading comes first, because objects that are created here later have the same names.
CASES = sorted(
    ((path, method, operation.role) for path, of in ROUTES.items() for method, operation in of.items()),
    key=lambda case: case[1] != "GET",
)
# Streams do not end; `test_changes` covers them.
STREAMS = {path for path in ROUTES if path.endswith("/changes")}


class World:
    """Two organisations on one server. The other one has an object of each kind, with the names in the paths."""

    def __init__(self, store):
        self.store = store
        self.keys = {}
        self.app = create_app(
            store, {"local": FakeHost().end}, org=OURS, keys=callers.single_key(KEY, OURS), version="1"
        )
        self.ids = {}

    async def fill(self):
        for org in (OURS, THEIRS):
            for role in Role:
                self.keys[org, role] = await self._key(org, role)
        self.keys["revoked"] = await self._key(OURS, Role.ADMIN)
        admin = self.keys[OURS, Role.ADMIN]
        await self.call(admin, "DELETE", f"/orgs/{OURS}/keys/{self.keys['revoked'].split('_')[1]}")
        self.keys["expired"] = await self._key(OURS, Role.ADMIN, seconds=1)
        self.keys["none"] = ""
        self.keys["wrong"] = admin[:-1] + ("x" if admin[-1] != "x" else "y")
        theirs, at = self.keys[THEIRS, Role.ADMIN], f"/orgs/{THEIRS}"
        said = [
            await self.call(theirs, "PUT", f"{at}/clusters/{CANARY}"),
            await self.call(theirs, "POST", f"{at}/clusters/{CANARY}/tokens", {}),
            await self.call(theirs, "PUT", f"{at}/resource-plugins/db", specs.plugin(description=CANARY)),
            await self.call(theirs, "PUT", f"{at}/workloads/default/shop", specs.baseline(env={"A": CANARY})),
            await self.call(theirs, "PUT", f"{at}/sandboxes/sb1", specs.empty(cluster=CANARY, description=CANARY)),
            await self.call(theirs, "POST", f"{at}/keys", {"name": CANARY, "role": "viewer"}),
        ]
        assert [status for status, _ in said] == [200] * 6, said
        self.ids = {"tokens": said[1][1]["id"], "keys": said[5][1]["id"]}
        self.routing_key = said[4][1]["routingKey"]

    async def call(self, key, method, path, body=None):
        return await call(self.app, key, method, API + path, body)

    async def _key(self, org, role, seconds=0):
        make = lambda rows: keys.create(rows, f"{org} {role.api_name}", role, who=Actor(org, "t", "t"), seconds=seconds)  # noqa: E731
        return (await self.store.for_org(org).write(make))[0]

    def address(self, path, org):
        """Return the path of the other organisation's object."""
        names = {"{org}": org, "{namespace}": "default", "{id}": self.ids["tokens" if "tokens" in path else "keys"]}
        names["{name}"] = CANARY if "clusters" in path else "db" if "plugins" in path else "shop"
        if "sandboxes" in path:
            names["{name}"] = "sb1"
        for name, value in names.items():
            path = path.replace(name, value)
        return path

    def find_canaries(self, answer, asked):
        """Return the canaries in an answer that are not in the request."""
        text = json.dumps(answer)
        found = [*self.ids.values(), self.routing_key, CANARY]
        return [each for each in found if each in text and each not in asked]


BODIES = {"POST": {"reason": "r", "name": "n", "role": "viewer"}, "PUT": {"seconds": 5, "spec": {"cluster": "local"}}}


async def test_every_route_for_every_role_and_every_organisation(place, monkeypatch, played):
    store = Store.open(place)
    try:
        world = World(store)
        await world.fill()
        now = time.time_ns() + 5 * 10**9
        monkeypatch.setattr(time, "time_ns", lambda: now)
        tried = 0
        for path, method, least in CASES:
            body = BODIES.get(method)
            if path.startswith("/agent/"):
                # Only for cluster tokens: no key has access.
                for key in world.keys.values():
                    status, answer = await world.call(key, method, path, body)
                    assert (status, answer["error"].split(":")[0]) == (401, "no valid cluster token"), (method, path)
                    tried += 1
                continue
            if path == "/page/enter":
                # Signing in needs a link, which none of these keys has (tests/page).
                status, answer = await world.call("", method, path, {"code": "00.00"})
                assert (status, world.find_canaries(answer, path)) == (403, []), answer
                continue
            if least is None:
                status, answer = await world.call("", method, path, body)
                assert (status, world.find_canaries(answer, path)) == (200, []), (method, path)
                continue
            for who in ("none", "wrong", "revoked", "expired"):
                for org in (OURS, THEIRS):
                    at = world.address(path, org)
                    status, answer = await world.call(world.keys[who], method, at, body)
                    assert (status, answer["error"].split(":")[0]) == (401, "no valid key"), (who, method, at)
                    assert world.find_canaries(answer, "") == [], (who, method, at)
                    tried += 1
            for role in Role:
                own, foreign = world.address(path, OURS), world.address(path, THEIRS)
                if "{org}" in path:
                    status, answer = await world.call(world.keys[OURS, role], method, foreign, body)
                    assert status == 404, (role, method, foreign)
                    assert world.find_canaries(answer, foreign) == [], (role, method, foreign, answer)
                    tried += 1
                if path in STREAMS and role >= least and "{name}" not in path:
                    continue
                status, answer = await world.call(world.keys[OURS, role], method, own, body)
                tried += 1
                assert world.find_canaries(answer, own) == [], (role, method, own, answer)
                if role < least:
                    assert status == 403, (role, method, own)
                    assert f"needs the role {least.api_name}" in answer["error"]
                else:
                    assert status not in (401, 403), (role, method, own, answer)
        played("routes for a role and an organisation", tried)
        assert tried > 500
        theirs = world.keys[THEIRS, Role.ADMIN]
        status, sandbox = await world.call(theirs, "GET", f"/orgs/{THEIRS}/sandboxes/sb1")
        assert (status, sandbox["spec"]["description"]) == (200, CANARY), (
            "nothing of the other organisation was changed"
        )
        assert (await world.call(theirs, "GET", f"/orgs/{THEIRS}/audit"))[1]["head"]["number"] == 6 + 3
    finally:
        store.close()
