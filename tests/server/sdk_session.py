"""Runs with the Python of the SDK's environment and calls a server with the real `signadot-sdk`.

Arguments: the server's port, its key, the session, and a file to create once the end of a sandbox is visible. Prints
one JSON value.
"""

import json
import pathlib
import sys
import time

import signadot_sdk as sd
from signadot_sdk.rest import ApiException

PORT, KEY, WHAT, SEEN = sys.argv[1:5]


def refused(call):
    """Return status and body of a call that must fail."""
    try:
        call()
    except ApiException as fault:
        return [fault.status, json.loads(fault.body)]
    raise SystemExit("it was not refused")


def client():
    config = sd.Configuration()
    config.host = f"http://127.0.0.1:{PORT}/api/v2"
    config.api_key["signadot-api-key"] = KEY
    return sd.ApiClient(config)


def life():
    """Create and delete a sandbox."""
    api = sd.SandboxesApi(client())
    resource = sd.SandboxResource(name="mydb", plugin="db", params={"size": "small"})
    ttl = sd.SandboxTTL(duration="2h")
    spec = sd.SandboxSpec(cluster="local", description="from the SDK", resources=[resource], ttl=ttl, forks=[])
    made = api.apply_sandbox("local", "sb1", sd.Sandbox(spec=spec))
    while not (got := api.get_sandbox("local", "sb1")).status.ready:
        time.sleep(0.05)
    listed = api.list_sandboxes("local")
    again = api.apply_sandbox("local", "sb1", sd.Sandbox(spec=got.spec))
    deleted = [api.delete_sandbox("local", "sb1"), api.delete_sandbox("local", "sb1", force=False)]
    while (last := api.get_sandbox("local", "sb1")).status.ready:
        time.sleep(0.05)
    pathlib.Path(SEEN).touch()
    gone = None
    while gone is None:
        try:
            api.get_sandbox("local", "sb1")
            time.sleep(0.05)
        except ApiException as fault:
            gone = [fault.status, json.loads(fault.body)["error"]]
    return {
        "made": made.to_dict(),
        "got": got.to_dict(),
        "again": again.to_dict(),
        "listed": [sandbox.name for sandbox in listed],
        "deleted": deleted,
        "last": [last.status.ready, last.status.reason, last.status.message],
        "gone": gone,
    }


def forks():
    """Create a fork with an endpoint and environment variables from a resource."""
    api = sd.SandboxesApi(client())
    source = sd.SandboxEnvValueFrom(resource=sd.SandboxEnvValueFromResource(name="mydb", output_key="provision.host"))
    env = [sd.SandboxEnvVar(name="DB_HOST", value_from=source), sd.SandboxEnvVar(name="PLAIN", value="x")]
    fork = sd.SandboxFork(
        fork_of=sd.SandboxForkOf(kind="Deployment", namespace="default", name="shop"),
        customizations=sd.SandboxCustomizations(env=env),
    )
    group = sd.SandboxDefaultRouteGroup(
        endpoints=[sd.RouteGroupSpecEndpoint(name="web", target="http://shop.default.svc:80")]
    )
    resource = sd.SandboxResource(name="mydb", plugin="db", params={})
    spec = sd.SandboxSpec(cluster="local", forks=[fork], resources=[resource], default_route_group=group)
    api.apply_sandbox("local", "sb2", sd.Sandbox(spec=spec))
    return api.get_sandbox("local", "sb2").to_dict()


def groups():
    """Create and delete a route group."""
    api = sd.RouteGroupsApi(client())
    match = sd.RouteGroupMatch(label=sd.RouteGroupMatchLabel(key="team", value="pay*"))
    endpoints = [sd.RouteGroupSpecEndpoint(name="web", target="http://shop.default.svc:80")]
    spec = sd.RouteGroupSpec(cluster="local", description="from the SDK", match=match, endpoints=endpoints)
    made = api.apply_routegroup("local", "rg1", sd.RouteGroup(spec=spec))
    again = api.apply_routegroup("local", "rg1", sd.RouteGroup(spec=made.spec))
    wider = sd.RouteGroupMatch(any=[match, sd.RouteGroupMatch(label=sd.RouteGroupMatchLabel(key="x", value="[^y]"))])
    changed = api.apply_routegroup("local", "rg1", {"spec": {**made.spec.to_dict(), "match": wider}})
    while not (got := api.get_routegroup("local", "rg1")).status.ready:
        time.sleep(0.05)
    listed = api.list_routegroups("local")
    deleted = api.delete_routegroup("local", "rg1")
    pathlib.Path(SEEN).touch()
    gone = None
    while gone is None:
        try:
            api.get_routegroup("local", "rg1")
            time.sleep(0.05)
        except ApiException as fault:
            gone = [fault.status, json.loads(fault.body)["error"]]
    return {
        "made": made.to_dict(),
        "again": again.to_dict(),
        "changed": changed.to_dict(),
        "got": got.to_dict(),
        "listed": [group.name for group in listed],
        "deleted": deleted,
        "gone": gone,
    }


def clusters():
    """Use the cluster API of a server without agents."""
    api = sd.ClusterApi(client())
    return {
        "list": [cluster.to_dict() for cluster in api.list_clusters("local")],
        "get": api.get_cluster("local", "local").to_dict(),
        "tokens": api.list_cluster_tokens("local", "local"),
        "missing": refused(lambda: api.get_cluster("local", "other"))[0],
        "token": refused(lambda: api.create_cluster_token("local", "local"))[0],
    }


def plugins():
    """Use plugins by the SDK's generic call; it has no plugin API."""

    def call(method, path, body=None, **parameters):
        return client().call_api(
            "/orgs/{orgName}/resource-plugins" + path,
            method,
            {"orgName": "local", **parameters},
            [],
            {"Accept": "application/json"},
            body=body,
            response_type="object",
            auth_settings=["ApiKeyAuth"],
            _return_http_data_only=True,
        )

    step = {"name": "make", "script": "#!/bin/sh\n"}
    plugin = {"name": "viasdk@1.0", "spec": {"runner": {"image": "busybox"}, "create": [step], "delete": None}}
    return {
        "put": call("PUT", "/{name}", plugin, name="viasdk"),
        "again": refused(lambda: call("PUT", "/{name}", plugin, name="viasdk"))[0],
        "list": [found["name"] for found in call("GET", "")],
        "delete": call("DELETE", "/{name}", name="viasdk"),
        "versions": call("GET", "/{name}/versions", name="viasdk"),
    }


def denied():
    """Read each kind of error."""
    api = sd.SandboxesApi(client())
    return refused(lambda: api.list_sandboxes("local"))


def wrong():
    api = sd.SandboxesApi(client())
    return refused(lambda: api.apply_sandbox("local", "sb1", {"spec": {"cluster": "local", "bogus": 1}}))


print(json.dumps({f.__name__: f for f in (life, forks, groups, clusters, plugins, denied, wrong)}[WHAT](), default=str))
