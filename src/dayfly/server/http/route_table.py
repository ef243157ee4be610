"""The table of all endpoints: their methods, and the role that a key needs for each.

`handler.serve` only serves paths in this table.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from dayfly.link.envelope import (
    ReceivedCount,
    ResourcesAnswer,
    ResourcesRequest,
    SentMessages,
    Session,
    SessionRequest,
    StartRequest,
    UnreadMessages,
)
from dayfly.server import attention
from dayfly.server.access.callers import Role
from dayfly.server.access.scopes import Reach
from dayfly.server.http import forms
from dayfly.spec import api
from dayfly.spec.routing.rules import PARAMETERS

API = "/api/v2"
VIEWER, MEMBER, ADMIN = Role.VIEWER, Role.MEMBER, Role.ADMIN


class QueryParameter(NamedTuple):
    """A query parameter: its JSON type, and its meaning in the OpenAPI document."""

    type: str
    meaning: str


class RouteOperation(NamedTuple):
    """One method of one path.

    Attributes:
        role: The lowest role that may use it; None if it needs no key.
        summary: Its summary in the OpenAPI document.
        answer: The type of the answer 200; in a list for a list of this type.
        query: The query parameters by name.
        body: The type of the body; None if it has none.
    """

    role: Role | None
    summary: str
    answer: Any = forms.Nothing
    query: Mapping[str, QueryParameter] = {}
    body: Any = None


_ORG = "/orgs/{org}"
_CLUSTER = _ORG + "/clusters/{name}"
_PLUGIN = _ORG + "/resource-plugins/{name}"
_SANDBOX = _ORG + "/sandboxes/{name}"
_SESSION = _ORG + "/sessions/{name}"
_GROUP = _ORG + "/routegroups/{name}"
_POOL = _ORG + "/resourcepools/{name}"
_CHECK = _ORG + "/leakchecks/{name}"
_AFTER_NAME = QueryParameter("string", "Only objects with a later name.")
_LIMIT = QueryParameter("integer", "The maximum number of objects, at least 1.")
_LABEL = QueryParameter("string", "Only objects with these labels: `team=pay,!draft`. May be repeated.")
_MINE = QueryParameter("boolean", "Whether to list only sandboxes that a key with the caller's name created.")
_WAIT = QueryParameter("integer", "Seconds to wait for something new, at most 30.")
_REPORTS = {"reports": QueryParameter("boolean", "Whether each object has its `report`; by default false.")}
_PAGE = {"after": _AFTER_NAME, "limit": _LIMIT}
_AUDIT = {
    "after": QueryParameter("integer", "Only entries with a higher number."),
    "limit": QueryParameter("integer", "The maximum number of entries, at most 500; by default 500."),
}
_COLLECT = {
    "session": QueryParameter("integer", "Number of the session."),
    "after": QueryParameter("integer", "Number of the last received message."),
    "digest": QueryParameter("string", "Digest of the last received message."),
    "wait": _WAIT,
}
_VERSION = {"version": QueryParameter("string", "A version, like `1.2.3`; by default the highest.")}
_VERSIONS = {"version": QueryParameter("string", "`latest` (the default) or `all`.")}
_ENDED = {
    "before": QueryParameter("integer", "Only sandboxes that ended before this time, in Unix milliseconds."),
    "limit": QueryParameter("integer", "The maximum number of sandboxes, at most 1000; by default 200."),
    "plugin": QueryParameter("string", "Only sandboxes with a resource of this plugin, in any version."),
}
_USAGE = {
    "by": QueryParameter("string", "Key of a label, `createdBy` (the default) or `cluster`."),
    "since": QueryParameter("string", "Begin of the period, in RFC 3339; by default 30 days before its end."),
    "until": QueryParameter("string", "End of the period, in RFC 3339; by default now."),
}
_FORCE = {"force": QueryParameter("boolean", "Whether to abandon the cleanup.")}
_FINDINGS = {"findings": QueryParameter("boolean", "Include the findings and their cost; true by default.")}
_MASKED = {"masked": QueryParameter("boolean", "Whether to leave out the values of sensitive outputs.")}
_REPORT = {"after": QueryParameter("integer", "Wait for a report with a higher version."), "wait": _WAIT}
_SINCE = {"sinceTime": QueryParameter("string", "Only lines since this time, in RFC 3339.")}
_LOG = {
    "unit": QueryParameter("string", "ID of the unit, like `db/provision`."),
    "attempt": QueryParameter("integer", "Number of the attempt; by default the newest."),
    "offset": QueryParameter("integer", "First byte of the log."),
    "wait": _WAIT,
    "timestamps": QueryParameter("boolean", "Whether to return `times`; by default false."),
    **_SINCE,
}
_FILTERS = dict(
    zip(
        PARAMETERS,
        ("kind of baseline", "namespace of the baseline", "name of the baseline", "routing key", "sandbox"),
        strict=True,
    )
)
_RULES = {name: QueryParameter("string", f"Only rules with this {what}.") for name, what in _FILTERS.items()}
_LOGS = {
    "resource": QueryParameter("string", "Name of a resource."),
    "step": QueryParameter("string", "Name of a step of the resource, or of a hook."),
    "workload": QueryParameter("string", "Name of the baseline of a fork, instead of `resource` and `step`."),
    "container": QueryParameter("string", "Only `main`."),
    "timestamps": QueryParameter("boolean", "Whether lines have their time; by default true."),
    **_SINCE,
}
_GROUPS = {
    "label": _LABEL,
    "sandbox": QueryParameter("string", "Only the route groups that this sandbox belongs to now."),
    **_REPORTS,
    **_PAGE,
}
_UID = QueryParameter("string", "The UID of the run, if several runs had the name.")

ROUTES: dict[str, dict[str, RouteOperation]] = {
    "/meta/health": {"GET": RouteOperation(None, "Check whether the server and its store respond.", forms.Health)},
    "/meta/reasons": {"GET": RouteOperation(VIEWER, "List all reasons with their meanings.", [forms.ReasonMeaning])},
    "/meta/openapi.json": {"GET": RouteOperation(None, "Return this document.", forms.Document)},
    "/page/links": {
        "POST": RouteOperation(VIEWER, "Create a link that signs in on the web page once.", forms.PageLink)
    },
    "/page/enter": {
        "POST": RouteOperation(None, "Sign in on the web page with a link.", forms.PageSession, body=forms.PageCode)
    },
    "/page/session": {
        "GET": RouteOperation(VIEWER, "Return the key that is signed in on the web page.", forms.PageSession),
        "DELETE": RouteOperation(VIEWER, "Sign out of the web page."),
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
    "/agent/resources": {
        "POST": RouteOperation(
            None, "For agents: find resources of other clusters.", ResourcesAnswer, body=ResourcesRequest
        )
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
        "GET": RouteOperation(ADMIN, "List the keys, without their secrets.", [forms.ApiKey]),
        "POST": RouteOperation(
            ADMIN, "Create a key; only this answer contains its secret.", forms.ApiKey, body=forms.NewKey
        ),
    },
    _ORG + "/keys/{id}": {"DELETE": RouteOperation(ADMIN, "Revoke a key.")},
    _ORG + "/sessions": {
        "GET": RouteOperation(ADMIN, "List the sessions of agents.", [forms.AgentSession]),
        "POST": RouteOperation(
            MEMBER,
            "Start a session of an agent; only this answer contains its key.",
            forms.AgentSession,
            body=forms.NewSession,
        ),
    },
    _SESSION: {"DELETE": RouteOperation(MEMBER, "End a session; all its sandboxes are deleted.")},
    _SESSION + "/lease": {
        "PUT": RouteOperation(MEMBER, "Renew the lease of a session.", forms.Until, body=forms.Seconds)
    },
    _ORG + "/audit": {
        "GET": RouteOperation(
            ADMIN,
            "List the entries of the audit log, the oldest first.",
            forms.AuditPage,
            _AUDIT,
        )
    },
    _ORG + "/resource-plugins": {"GET": RouteOperation(VIEWER, "List all resource plugins.", [api.Plugin], _VERSIONS)},
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
        "GET": RouteOperation(
            VIEWER, "List all sandboxes.", [api.Sandbox], {"label": _LABEL, "mine": _MINE, **_REPORTS, **_PAGE}
        )
    },
    _ORG + "/attention": {
        "GET": RouteOperation(VIEWER, "List what needs attention, the most severe first.", [attention.Concern])
    },
    _ORG + "/ended-sandboxes": {
        "GET": RouteOperation(VIEWER, "List ended sandboxes, the newest first.", [forms.EndedRun], _ENDED)
    },
    _ORG + "/usage": {"GET": RouteOperation(VIEWER, "Add up how long sandboxes lived, by label.", forms.Usage, _USAGE)},
    _SANDBOX + "/plan": {
        "GET": RouteOperation(VIEWER, "Return the units of a sandbox by event, and its cleanup in order.", forms.Plan)
    },
    _SANDBOX + "/reveal": {
        "POST": RouteOperation(
            MEMBER, "Return one output, and record this access in the audit log.", api.Output, body=forms.OutputName
        )
    },
    _SANDBOX: {
        "GET": RouteOperation(VIEWER, "Return a sandbox.", api.Sandbox),
        "PUT": RouteOperation(MEMBER, "Create or change a sandbox.", api.Sandbox, body=forms.NewSandbox),
        "DELETE": RouteOperation(MEMBER, "Delete a sandbox; its cleanup continues after the answer.", query=_FORCE),
    },
    _SANDBOX + "/abandon": {
        "POST": RouteOperation(MEMBER, "Delete a sandbox without its cleanup.", body=forms.WhyAbandon)
    },
    _SANDBOX + "/retry": {
        "POST": RouteOperation(MEMBER, "Retry units now that wait for a retry.", forms.Retried, body=forms.Units)
    },
    _SANDBOX + "/reset": {
        "POST": RouteOperation(MEMBER, "Give a resource another pool member.", forms.Replaced, body=forms.ResourceName)
    },
    _SANDBOX + "/lease": {
        "PUT": RouteOperation(MEMBER, "Renew the lease of a sandbox.", forms.Until, body=forms.Seconds)
    },
    _SANDBOX + "/extend": {
        "POST": RouteOperation(MEMBER, "Extend the time to live of a sandbox.", api.Sandbox, body=forms.Extend)
    },
    _ORG + "/routegroups": {"GET": RouteOperation(VIEWER, "List all route groups.", [api.RouteGroup], _GROUPS)},
    _GROUP + "/plan": {"GET": RouteOperation(VIEWER, "Return the hooks of a route group by event.", forms.Plan)},
    _GROUP + "/reveal": {
        "POST": RouteOperation(
            MEMBER, "Return one output, and record this access in the audit log.", api.Output, body=forms.OutputName
        )
    },
    _GROUP: {
        "GET": RouteOperation(VIEWER, "Return a route group and its current sandboxes.", api.RouteGroup),
        "PUT": RouteOperation(MEMBER, "Create or change a route group.", api.RouteGroup, body=forms.NewRouteGroup),
        "DELETE": RouteOperation(MEMBER, "Delete a route group; its cleanup continues after the answer.", query=_FORCE),
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
    _ORG + "/resourcepools": {
        "GET": RouteOperation(VIEWER, "List all resource pools.", [api.Pool], {"label": _LABEL, **_PAGE})
    },
    _POOL: {
        "GET": RouteOperation(VIEWER, "Return a resource pool and its members.", api.Pool),
        "PUT": RouteOperation(MEMBER, "Create or change a resource pool.", api.Pool, body=forms.NewResourcePool),
        "DELETE": RouteOperation(MEMBER, "Delete a resource pool; sandboxes keep their members.", query=_FORCE),
    },
    _POOL + "/abandon": {
        "POST": RouteOperation(MEMBER, "Delete a resource pool without its cleanup.", body=forms.WhyAbandon)
    },
    _POOL + "/pause": {
        "POST": RouteOperation(MEMBER, "Create no further members until the pool is resumed.", api.Pool)
    },
    _POOL + "/resume": {"POST": RouteOperation(MEMBER, "Create members again.", api.Pool)},
    _POOL + "/explain": {
        "GET": RouteOperation(
            VIEWER, "Return how a pool is used, and the predicted misses for other sizes.", api.PoolExplanation
        )
    },
    _POOL + "/drain": {"POST": RouteOperation(MEMBER, "Pause a pool and delete its unused members.", api.Pool)},
    _ORG + "/leakchecks": {
        "GET": RouteOperation(VIEWER, "List all leak checks and their findings.", [api.LeakCheck], _FINDINGS)
    },
    _CHECK: {
        "GET": RouteOperation(VIEWER, "Return a leak check and its findings.", api.LeakCheck),
        "PUT": RouteOperation(MEMBER, "Create or change a leak check.", api.LeakCheck, body=forms.NewLeakCheck),
        "DELETE": RouteOperation(MEMBER, "Delete a leak check; nothing that it has found is deleted."),
    },
    _CHECK + "/sweep": {
        "POST": RouteOperation(
            MEMBER, "List soon, and delete what a plan names.", api.LeakCheck, body=forms.SweepRequest
        )
    },
    _ORG + "/metrics": {"GET": RouteOperation(VIEWER, "Return metrics of pools and leak checks.", forms.Metrics)},
    _SANDBOX + "/changes": {"GET": RouteOperation(VIEWER, "Stream the changes of a sandbox.", forms.Events)},
    _POOL + "/changes": {"GET": RouteOperation(VIEWER, "Stream the changes of a pool.", forms.Events)},
    _GROUP + "/changes": {"GET": RouteOperation(VIEWER, "Stream the changes of a route group.", forms.Events)},
    _ORG + "/changes": {
        "GET": RouteOperation(VIEWER, "Stream the changes of all sandboxes, route groups and pools.", forms.Events)
    },
    _SANDBOX + "/status/explain": {"GET": RouteOperation(VIEWER, "Not supported: use `why`.")},
    _SANDBOX + "/report": {
        "GET": RouteOperation(VIEWER, "Return the state of each unit of a sandbox.", api.Report, _REPORT)
    },
    _SANDBOX + "/why": {
        "GET": RouteOperation(VIEWER, "Return what blocks a sandbox, down to the root cause.", api.Blocker)
    },
    _SANDBOX + "/outputs": {
        "GET": RouteOperation(MEMBER, "List all outputs, including sensitive ones.", [api.Output], _MASKED)
    },
    _SANDBOX + "/attempts": {"GET": RouteOperation(VIEWER, "List the attempts that have a log.", [api.Attempt])},
    _SANDBOX + "/log": {
        "GET": RouteOperation(VIEWER, "Return a part of the log of one attempt.", forms.LogChunk, _LOG)
    },
    _SANDBOX + "/logs": {
        "GET": RouteOperation(
            VIEWER, "Return the last lines of a resource, a step or a fork.", [forms.ContainerLog], _LOGS
        )
    },
    _SANDBOX + "/history": {"GET": RouteOperation(VIEWER, "List all moves of a sandbox's ledger.", [api.Move])},
}
# Route groups and pools have the same endpoints for reading. `uid` selects one of several runs that had the name.
for _name in ("report", "why", "outputs", "attempts", "log", "logs", "history"):
    _operation = ROUTES[f"{_SANDBOX}/{_name}"]["GET"]
    _operation = _operation._replace(query={**_operation.query, "uid": _UID})
    ROUTES[f"{_SANDBOX}/{_name}"] = {"GET": _operation}
    for _path, _noun in ((_GROUP, "route group"), (_POOL, "pool")):
        if (_path, _name) != (_POOL, "outputs"):
            _summary = _operation.summary.replace("sandbox", _noun)
            ROUTES[f"{_path}/{_name}"] = {"GET": _operation._replace(summary=_summary)}


WITH_TAGS = (_SANDBOX, _GROUP, _POOL, _PLUGIN, _CLUSTER, _ORG + "/workloads/{namespace}/{name}")
"""Paths of objects that have an ETag and whose changes may have preconditions."""

_RUNS = (_ORG + "/sandboxes", _ORG + "/routegroups")
_ALL_RUNS = (
    *(_ORG + name for name in ("/changes", "/attention", "/ended-sandboxes", "/metrics", "/usage")),
    "/workloads/routing-rules",
)
FOR_AGENTS = frozenset(
    {
        *((path, "GET") for path in ("/orgs", "/meta/reasons", _ORG + "/clusters", _ORG + "/resource-plugins")),
        *((path, "GET") for path in (_PLUGIN, _PLUGIN + "/versions", "/page/session")),
        (_ORG + "/sessions", "POST"),
        (_SESSION, "DELETE"),
        (_SESSION + "/lease", "PUT"),
    }
)
"""Operations without a sandbox that keys for agents may use, by path and method."""
_OF_SANDBOXES_FOR_AGENTS = frozenset(
    {
        *((_SANDBOX, method) for method in ("GET", "PUT", "DELETE")),
        *((f"{_SANDBOX}/{name}", "POST") for name in ("retry", "reset", "extend", "reveal")),
        *((f"{_SANDBOX}/{name}", "GET") for name in ("plan", "report", "why", "outputs", "attempts")),
        *((f"{_SANDBOX}/{name}", "GET") for name in ("log", "logs", "history")),
        (_SANDBOX + "/lease", "PUT"),
        (_ORG + "/sandboxes", "GET"),
    }
)
_OWN_SESSION = ("/page/links", "/page/session")


def is_for_agents(path: str, method: str) -> bool:
    """Return whether keys for agents may use an operation. New operations are not for them by default."""
    return (path, method) in FOR_AGENTS or (path, method) in _OF_SANDBOXES_FOR_AGENTS


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
