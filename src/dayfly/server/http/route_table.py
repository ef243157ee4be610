"""The table of all endpoints: their methods, and the role that a key needs for each.

`handler.serve` only serves paths in this table.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from dayfly.link.envelope import ReceivedCount, SentMessages, Session, SessionRequest, StartRequest, UnreadMessages
from dayfly.server import attention
from dayfly.server.access.callers import Role
from dayfly.server.access.scopes import Reach
from dayfly.server.http import forms
from dayfly.spec import api
from dayfly.spec.routing.rules import PARAMETERS

API = "/api/v2"
VIEWER, MEMBER, ADMIN = Role.VIEWER, Role.MEMBER, Role.ADMIN


class RouteOperation(NamedTuple):
    """One method of one path.

    Attributes:
        role: The lowest role that may use it; None if it needs no key.
        summary: Its summary in the OpenAPI document.
        answer: The type of the answer 200; in a list for a list of this type.
        query: The query parameters, with their JSON types.
        body: The type of the body; None if it has none.
    """

    role: Role | None
    summary: str
    answer: Any = forms.Nothing
    query: Mapping[str, str] = {}
    body: Any = None


_ORG = "/orgs/{org}"
_CLUSTER = _ORG + "/clusters/{name}"
_PLUGIN = _ORG + "/resource-plugins/{name}"
_SANDBOX = _ORG + "/sandboxes/{name}"
_GROUP = _ORG + "/routegroups/{name}"
_PAGE = {"after": "string", "limit": "integer"}
_COLLECT = {"session": "integer", "after": "integer", "digest": "string", "wait": "integer"}
_VERSION = {"version": "string"}
_ENDED = {"before": "integer", "limit": "integer"}
_MASKED = {"masked": "boolean"}
_TIMES = {"timestamps": "boolean", "sinceTime": "string"}
_LOG = {"unit": "string", "attempt": "integer", "offset": "integer", "wait": "integer", **_TIMES}
_RULES = dict.fromkeys(PARAMETERS, "string")
_LOGS = dict.fromkeys(("resource", "step", "workload", "container"), "string") | _TIMES

ROUTES: dict[str, dict[str, RouteOperation]] = {
    "/meta/health": {"GET": RouteOperation(None, "Check whether the server and its store respond.", forms.Health)},
    "/meta/reasons": {"GET": RouteOperation(VIEWER, "List all reasons with their meanings.", [forms.ReasonMeaning])},
    "/meta/openapi.json": {"GET": RouteOperation(None, "Return this document.", forms.Document)},
    "/page/links": {"POST": RouteOperation(VIEWER, "Create a link that signs in on the page once.", forms.PageLink)},
    "/page/enter": {
        "POST": RouteOperation(None, "Sign in on the page with a link.", forms.PageSession, body=forms.PageCode)
    },
    "/page/session": {
        "GET": RouteOperation(VIEWER, "Return who is signed in on the page.", forms.PageSession),
        "DELETE": RouteOperation(VIEWER, "Sign out."),
    },
    "/orgs": {"GET": RouteOperation(VIEWER, "Return the organisation of the key.", forms.Organisations)},
    _ORG + "/clusters": {"GET": RouteOperation(VIEWER, "List all clusters.", [forms.Cluster], _PAGE)},
    _CLUSTER: {
        "GET": RouteOperation(VIEWER, "Return a cluster.", forms.Cluster),
        "PUT": RouteOperation(ADMIN, "Add a cluster; an existing one is not changed.", forms.Cluster),
        "DELETE": RouteOperation(ADMIN, "Remove a cluster and its tokens."),
    },
    _CLUSTER + "/thaw": {
        "GET": RouteOperation(ADMIN, "Return why a cluster is frozen, and what only one side has.", forms.Frozen),
        "POST": RouteOperation(ADMIN, "Continue with a frozen cluster from its current state."),
    },
    "/agent/session": {"POST": RouteOperation(None, "For agents: start a session.", Session, body=SessionRequest)},
    "/agent/messages": {
        "GET": RouteOperation(None, "For agents: fetch messages.", UnreadMessages, _COLLECT),
        "POST": RouteOperation(None, "For agents: send messages.", ReceivedCount, body=SentMessages),
    },
    "/agent/births": {
        "POST": RouteOperation(None, "For agents: check which runs may start.", StartRequest, body=StartRequest)
    },
    _CLUSTER + "/tokens": {
        "GET": RouteOperation(ADMIN, "List the tokens of a cluster, without their secrets.", [forms.ClusterToken]),
        "POST": RouteOperation(ADMIN, "Create a token; only this answer contains its secret.", forms.ClusterToken),
    },
    _CLUSTER + "/tokens/{id}": {
        "GET": RouteOperation(ADMIN, "Return a token, without its secret.", forms.ClusterToken),
        "DELETE": RouteOperation(ADMIN, "Revoke a token."),
    },
    _ORG + "/keys": {
        "GET": RouteOperation(ADMIN, "List the keys, without their secrets.", [forms.Key]),
        "POST": RouteOperation(
            ADMIN, "Create a key; only this answer contains its secret.", forms.Key, body=forms.NewKey
        ),
    },
    _ORG + "/keys/{id}": {"DELETE": RouteOperation(ADMIN, "Revoke a key.")},
    _ORG + "/audit": {
        "GET": RouteOperation(
            ADMIN,
            "List the entries of the audit log, the oldest first.",
            forms.AuditPage,
            {"after": "integer", "limit": "integer"},
        )
    },
    _ORG + "/resource-plugins": {"GET": RouteOperation(VIEWER, "List all resource plugins.", [api.Plugin], _VERSION)},
    _PLUGIN: {
        "GET": RouteOperation(VIEWER, "Return one version of a plugin, by default the highest.", api.Plugin, _VERSION),
        "PUT": RouteOperation(ADMIN, "Publish a version of a plugin.", body=forms.NewPlugin),
        "DELETE": RouteOperation(ADMIN, "Delete a version of a plugin that no sandbox uses.", query=_VERSION),
    },
    _PLUGIN + "/versions": {
        "GET": RouteOperation(VIEWER, "List all versions of a plugin, the highest first.", [api.Plugin])
    },
    "/workloads/routing-rules": {
        "GET": RouteOperation(
            VIEWER, "List the routing rules: baseline, routing key and fork.", forms.RoutingRules, _RULES
        )
    },
    _ORG + "/workloads": {"GET": RouteOperation(VIEWER, "List all baselines.", [api.Baseline])},
    _ORG + "/workloads/{namespace}/{name}": {
        "GET": RouteOperation(VIEWER, "Return a baseline.", api.Baseline),
        "PUT": RouteOperation(MEMBER, "Declare or change a baseline.", api.Baseline, body=api.Baseline),
        "DELETE": RouteOperation(MEMBER, "Delete a baseline that no fork uses."),
    },
    _ORG + "/sandboxes": {
        "GET": RouteOperation(VIEWER, "List all sandboxes.", [api.Sandbox], {"label": "string", **_PAGE})
    },
    _ORG + "/attention": {
        "GET": RouteOperation(VIEWER, "List what needs attention, the most severe first.", [attention.Concern])
    },
    _ORG + "/ended-sandboxes": {
        "GET": RouteOperation(VIEWER, "List ended sandboxes, the newest first.", [forms.Ended], _ENDED)
    },
    _SANDBOX + "/plan": {"GET": RouteOperation(VIEWER, "Return the units of a sandbox.", forms.Plan)},
    _SANDBOX + "/reveal": {
        "POST": RouteOperation(
            MEMBER, "Return one output and record it in the audit log.", api.Output, body=forms.OutputName
        )
    },
    _SANDBOX: {
        "GET": RouteOperation(VIEWER, "Return a sandbox.", api.Sandbox),
        "PUT": RouteOperation(MEMBER, "Create or change a sandbox.", api.Sandbox, body=forms.NewSandbox),
        "DELETE": RouteOperation(MEMBER, "Delete a sandbox.", query={"force": "boolean"}),
    },
    _SANDBOX + "/abandon": {
        "POST": RouteOperation(MEMBER, "Delete a sandbox without its cleanup.", body=forms.WhyAbandon)
    },
    _SANDBOX + "/retry": {
        "POST": RouteOperation(MEMBER, "Retry units now that wait for a retry.", forms.Retried, body=forms.Units)
    },
    _SANDBOX + "/lease": {
        "PUT": RouteOperation(MEMBER, "Renew the lease of a sandbox.", forms.Until, body=forms.Seconds)
    },
    _SANDBOX + "/extend": {
        "POST": RouteOperation(MEMBER, "Extend the time to live of a sandbox.", api.Sandbox, body=forms.Extend)
    },
    _ORG + "/routegroups": {
        "GET": RouteOperation(
            VIEWER, "List all route groups.", [api.RouteGroup], {"label": "string", "sandbox": "string", **_PAGE}
        )
    },
    _GROUP + "/plan": {"GET": RouteOperation(VIEWER, "Return the units of a route group.", forms.Plan)},
    _GROUP + "/reveal": {
        "POST": RouteOperation(
            MEMBER, "Return one output and record it in the audit log.", api.Output, body=forms.OutputName
        )
    },
    _GROUP: {
        "GET": RouteOperation(VIEWER, "Return a route group and its current sandboxes.", api.RouteGroup),
        "PUT": RouteOperation(MEMBER, "Create or change a route group.", api.RouteGroup, body=forms.NewRouteGroup),
        "DELETE": RouteOperation(MEMBER, "Delete a route group.", query={"force": "boolean"}),
    },
    _GROUP + "/abandon": {
        "POST": RouteOperation(MEMBER, "Delete a route group without its hooks.", body=forms.WhyAbandon)
    },
    _GROUP + "/retry": {
        "POST": RouteOperation(MEMBER, "Retry units now that wait for a retry.", forms.Retried, body=forms.Units)
    },
    _GROUP + "/extend": {
        "POST": RouteOperation(MEMBER, "Extend the time to live of a route group.", api.RouteGroup, body=forms.Extend)
    },
    _SANDBOX + "/changes": {"GET": RouteOperation(VIEWER, "Stream the changes of a sandbox.", forms.Events)},
    _GROUP + "/changes": {"GET": RouteOperation(VIEWER, "Stream the changes of a route group.", forms.Events)},
    _ORG + "/changes": {
        "GET": RouteOperation(VIEWER, "Stream the changes of all sandboxes and route groups.", forms.Events)
    },
    _SANDBOX + "/status/explain": {"GET": RouteOperation(VIEWER, "Not supported.")},
    _SANDBOX + "/report": {
        "GET": RouteOperation(
            VIEWER, "Return the state of each unit of a sandbox.", api.Report, {"after": "integer", "wait": "integer"}
        )
    },
    _SANDBOX + "/why": {
        "GET": RouteOperation(VIEWER, "Return what blocks a sandbox, down to the root cause.", api.Blocker)
    },
    _SANDBOX + "/outputs": {
        "GET": RouteOperation(MEMBER, "List all outputs, including sensitive ones.", [api.Output], _MASKED)
    },
    _SANDBOX + "/attempts": {"GET": RouteOperation(VIEWER, "List the available logs.", [api.Attempt])},
    _SANDBOX + "/log": {"GET": RouteOperation(VIEWER, "Return a part of a log.", forms.LogPiece, _LOG)},
    _SANDBOX + "/logs": {
        "GET": RouteOperation(
            VIEWER, "Return the newest logs of a resource, a step or a fork.", [forms.ContainerLog], _LOGS
        )
    },
    _SANDBOX + "/history": {"GET": RouteOperation(VIEWER, "List all moves of a sandbox's ledger.", [api.Move])},
}
# Route groups have the same endpoints for reading. `uid` selects one of several runs that had the name.
for _name in ("report", "why", "outputs", "attempts", "log", "logs", "history"):
    _operation = ROUTES[f"{_SANDBOX}/{_name}"]["GET"]
    _operation = _operation._replace(query={**_operation.query, "uid": "string"})
    ROUTES[f"{_SANDBOX}/{_name}"] = {"GET": _operation}
    _summary = _operation.summary.replace("sandbox", "route group")
    ROUTES[f"{_GROUP}/{_name}"] = {"GET": _operation._replace(summary=_summary)}


WITH_TAGS = (_SANDBOX, _GROUP, _PLUGIN, _CLUSTER, _ORG + "/workloads/{namespace}/{name}")
"""Paths of objects that have an ETag and whose changes may have preconditions."""

_RUNS = (_ORG + "/sandboxes", _ORG + "/routegroups")
_ALL_RUNS = (_ORG + "/changes", _ORG + "/attention", _ORG + "/ended-sandboxes", "/workloads/routing-rules")
_OWN_SESSION = ("/page/links", "/page/session")


def reach(path: str, method: str) -> Reach:
    """Return which keys with a scope may use an operation. By default only keys without a scope may."""
    if path.startswith(_RUNS) or path in _ALL_RUNS:
        return Reach.RUNS
    if path in _OWN_SESSION or (method == "GET" and ROUTES[path][method].role is VIEWER):
        return Reach.COMMON
    return Reach.PLUGIN if path == _PLUGIN else Reach.WHOLE


# --- endpoints of Signadot's API without an equivalent ----------------------------------------------------------------

LOGIN = f"{API}/auth/device"
"""Clients log in below this path, without a key."""

_UNSUPPORTED_PATH = re.compile(rf"{API}/orgs/[^/]+/([^/]+)(?:/.*)?", re.DOTALL)
_UNSUPPORTED_ENDPOINTS = {
    re.compile(rf"{LOGIN}/(code|token|token/refresh)"): (
        "login by a browser; use a key: signadot auth login --with-api-key KEY (dayfly key create NAME makes one)"
    ),
    re.compile(rf"{API}/meta/plans"): "plans of that kind",
    re.compile(rf"{API}/orgs/[^/]+/clusters/[^/]+/devmesh/analyze"): (
        "analysis of DevMesh: it has no sidecars, a Gateway routes requests"
    ),
    re.compile(r"/api/v1/orgs/[^/]+/(sandboxes|clusters)(/status)?"): "API of version 1: use /api/v2",
}
_UNSUPPORTED_COLLECTIONS = {
    "jobs": "jobs",
    "runnergroups": "runner groups of jobs",
    "artifacts": "artifacts of jobs",
    "secrets": "secrets of an organisation",
    "devboxes": "devboxes",
    "service-accounts": "service accounts (it gives keys to programs: dayfly key create)",
    "users": "users (it gives keys to people: dayfly key create)",
    "events": "event log (it has /changes, /audit and CloudEvents)",
    "tests": "Smart Tests",
    **dict.fromkeys(
        ("plans", "plan-tags", "plan-actions", "plan-runnergroups", "plan-runnergroup-settings"), "plans of that kind"
    ),
}


def describe_unsupported(path: str) -> str:
    """Return the feature of Signadot that a path belongs to and Dayfly does not support; "" for other paths."""
    if single := next((what for pattern, what in _UNSUPPORTED_ENDPOINTS.items() if pattern.fullmatch(path)), ""):
        return single
    found = _UNSUPPORTED_PATH.fullmatch(path)
    return _UNSUPPORTED_COLLECTIONS.get(found[1], "") if found else ""
