"""The table of all addresses: which methods each has, and the least role that a key needs for it.

An address that is not in here cannot be served: `exchange.serve` asks for it. `None` stands for no key at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from dayfly.link.envelope import Asked, Heard, Letters, Opening, Said, Session
from dayfly.server import attention
from dayfly.server.access.callers import Role
from dayfly.server.access.scopes import Reach
from dayfly.server.http import forms, page_forms
from dayfly.spec import api
from dayfly.spec.routing.rules import PARAMETERS

API = "/api/v2"
VIEWER, MEMBER, ADMIN = Role.VIEWER, Role.MEMBER, Role.ADMIN


class RouteOperation(NamedTuple):
    """One method of one address.

    Attributes:
        role: The least that the caller's key needs; None where no key is asked for.
        says: What it does, in a line.
        answer: The form of what 200 carries; in a list for a list of such.
        query: What may stand in the query, with its JSON type.
        body: The form of what is sent; None for nothing that is read.
    """

    role: Role | None
    says: str
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
    "/meta/health": {"GET": RouteOperation(None, "Whether the server and its store answer.", forms.Health)},
    "/meta/reasons": {
        "GET": RouteOperation(VIEWER, "Every reason that is said, and what it means.", [forms.ReasonMeaning])
    },
    "/meta/openapi.json": {"GET": RouteOperation(None, "This document.", forms.Document)},
    "/page/links": {
        "POST": RouteOperation(VIEWER, "Make a link that signs in on the page, once.", page_forms.PageLink)
    },
    "/page/enter": {
        "POST": RouteOperation(None, "Sign in on the page by a link.", page_forms.PageSession, body=page_forms.PageCode)
    },
    "/page/session": {
        "GET": RouteOperation(VIEWER, "Who is signed in on the page.", page_forms.PageSession),
        "DELETE": RouteOperation(VIEWER, "Sign out."),
    },
    "/orgs": {"GET": RouteOperation(VIEWER, "The organisation of the key.", forms.Organisations)},
    _ORG + "/clusters": {"GET": RouteOperation(VIEWER, "All clusters.", [forms.Cluster], _PAGE)},
    _CLUSTER: {
        "GET": RouteOperation(VIEWER, "A cluster.", forms.Cluster),
        "PUT": RouteOperation(ADMIN, "Add a cluster; one that is there stays as it is.", forms.Cluster),
        "DELETE": RouteOperation(ADMIN, "Remove a cluster and its tokens."),
    },
    _CLUSTER + "/thaw": {
        "GET": RouteOperation(ADMIN, "Why a cluster is frozen, and what one side alone has.", forms.Frozen),
        "POST": RouteOperation(ADMIN, "Go on with a frozen cluster from where it stands."),
    },
    "/agent/session": {"POST": RouteOperation(None, "For agents: begin a session.", Session, body=Opening)},
    "/agent/messages": {
        "GET": RouteOperation(None, "For agents: what is to be done.", Letters, _COLLECT),
        "POST": RouteOperation(None, "For agents: what is so.", Heard, body=Said),
    },
    "/agent/births": {"POST": RouteOperation(None, "For agents: which sandboxes are to live.", Asked, body=Asked)},
    _CLUSTER + "/tokens": {
        "GET": RouteOperation(ADMIN, "The tokens of a cluster's agents, without their secrets.", [forms.ClusterToken]),
        "POST": RouteOperation(ADMIN, "Make a token; its secret is in this answer alone.", forms.ClusterToken),
    },
    _CLUSTER + "/tokens/{id}": {
        "GET": RouteOperation(ADMIN, "A token, without its secret.", forms.ClusterToken),
        "DELETE": RouteOperation(ADMIN, "Revoke a token."),
    },
    _ORG + "/keys": {
        "GET": RouteOperation(ADMIN, "The keys of users, without their secrets.", [forms.Key]),
        "POST": RouteOperation(ADMIN, "Make a key; its secret is in this answer alone.", forms.Key, body=forms.NewKey),
    },
    _ORG + "/keys/{id}": {"DELETE": RouteOperation(ADMIN, "Revoke a key.")},
    _ORG + "/audit": {
        "GET": RouteOperation(
            ADMIN, "Who did what, the oldest first.", forms.AuditPage, {"after": "integer", "limit": "integer"}
        )
    },
    _ORG + "/resource-plugins": {"GET": RouteOperation(VIEWER, "All resource plugins.", [api.Plugin], _VERSION)},
    _PLUGIN: {
        "GET": RouteOperation(VIEWER, "One version of a plugin, the highest if none is named.", api.Plugin, _VERSION),
        "PUT": RouteOperation(ADMIN, "Publish a version of a plugin.", body=forms.NewPlugin),
        "DELETE": RouteOperation(ADMIN, "Remove a version of a plugin that no sandbox uses.", query=_VERSION),
    },
    _PLUGIN + "/versions": {
        "GET": RouteOperation(VIEWER, "All versions of a plugin, the highest first.", [api.Plugin])
    },
    "/workloads/routing-rules": {
        "GET": RouteOperation(VIEWER, "Which key leads from which baseline to whose fork.", forms.RoutingRules, _RULES)
    },
    _ORG + "/workloads": {"GET": RouteOperation(VIEWER, "All baselines.", [api.Baseline])},
    _ORG + "/workloads/{namespace}/{name}": {
        "GET": RouteOperation(VIEWER, "A baseline.", api.Baseline),
        "PUT": RouteOperation(MEMBER, "Declare a baseline, or change it.", api.Baseline, body=api.Baseline),
        "DELETE": RouteOperation(MEMBER, "Remove a baseline that no fork derives from."),
    },
    _ORG + "/sandboxes": {"GET": RouteOperation(VIEWER, "All sandboxes.", [api.Sandbox], {"label": "string", **_PAGE})},
    _ORG + "/attention": {"GET": RouteOperation(VIEWER, "What needs attention, the worst first.", [attention.Concern])},
    _ORG + "/ended-sandboxes": {
        "GET": RouteOperation(VIEWER, "Sandboxes that have ended, the last first.", [page_forms.Ended], _ENDED)
    },
    _SANDBOX + "/plan": {"GET": RouteOperation(VIEWER, "What a sandbox does, unit by unit.", page_forms.Plan)},
    _SANDBOX + "/reveal": {
        "POST": RouteOperation(MEMBER, "One output, for the record.", api.Output, body=page_forms.OutputName)
    },
    _SANDBOX: {
        "GET": RouteOperation(VIEWER, "A sandbox.", api.Sandbox),
        "PUT": RouteOperation(MEMBER, "Make a sandbox, or change it.", api.Sandbox, body=forms.NewSandbox),
        "DELETE": RouteOperation(MEMBER, "End a sandbox.", query={"force": "boolean"}),
    },
    _SANDBOX + "/abandon": {
        "POST": RouteOperation(MEMBER, "End a sandbox without its cleanup.", body=forms.WhyAbandon)
    },
    _SANDBOX + "/retry": {
        "POST": RouteOperation(MEMBER, "Try again now what waits to be tried again.", forms.Retried, body=forms.Units)
    },
    _SANDBOX + "/lease": {
        "PUT": RouteOperation(MEMBER, "Keep a sandbox for so long from now.", forms.Until, body=forms.Seconds)
    },
    _SANDBOX + "/extend": {
        "POST": RouteOperation(MEMBER, "Let a sandbox live longer.", api.Sandbox, body=forms.Extend)
    },
    _ORG + "/routegroups": {
        "GET": RouteOperation(
            VIEWER, "All route groups.", [api.RouteGroup], {"label": "string", "sandbox": "string", **_PAGE}
        )
    },
    _GROUP + "/plan": {"GET": RouteOperation(VIEWER, "What a route group does, unit by unit.", page_forms.Plan)},
    _GROUP + "/reveal": {
        "POST": RouteOperation(MEMBER, "One output, for the record.", api.Output, body=page_forms.OutputName)
    },
    _GROUP: {
        "GET": RouteOperation(VIEWER, "A route group, and whom it has now.", api.RouteGroup),
        "PUT": RouteOperation(MEMBER, "Make a route group, or change it.", api.RouteGroup, body=forms.NewRouteGroup),
        "DELETE": RouteOperation(MEMBER, "End a route group.", query={"force": "boolean"}),
    },
    _GROUP + "/abandon": {
        "POST": RouteOperation(MEMBER, "End a route group without its hooks.", body=forms.WhyAbandon)
    },
    _GROUP + "/retry": {
        "POST": RouteOperation(MEMBER, "Try again now what waits to be tried again.", forms.Retried, body=forms.Units)
    },
    _GROUP + "/extend": {
        "POST": RouteOperation(MEMBER, "Let a route group live longer.", api.RouteGroup, body=forms.Extend)
    },
    _SANDBOX + "/changes": {"GET": RouteOperation(VIEWER, "Live changes of a sandbox.", forms.Events)},
    _GROUP + "/changes": {"GET": RouteOperation(VIEWER, "Live changes of a route group.", forms.Events)},
    _ORG + "/changes": {"GET": RouteOperation(VIEWER, "Live changes of all sandboxes and route groups.", forms.Events)},
    _SANDBOX + "/status/explain": {"GET": RouteOperation(VIEWER, "Not here.")},
    _SANDBOX + "/report": {
        "GET": RouteOperation(
            VIEWER, "How each unit of a sandbox stands.", api.Report, {"after": "integer", "wait": "integer"}
        )
    },
    _SANDBOX + "/why": {"GET": RouteOperation(VIEWER, "What a sandbox waits for, down to the root.", api.Blocker)},
    _SANDBOX + "/outputs": {"GET": RouteOperation(MEMBER, "All outputs, sensitive ones too.", [api.Output], _MASKED)},
    _SANDBOX + "/attempts": {"GET": RouteOperation(VIEWER, "The logs that there are.", [api.Attempt])},
    _SANDBOX + "/log": {"GET": RouteOperation(VIEWER, "A piece of one log.", forms.LogPiece, _LOG)},
    _SANDBOX + "/logs": {
        "GET": RouteOperation(VIEWER, "The newest logs of a resource, a step or a fork.", [forms.ContainerLog], _LOGS)
    },
    _SANDBOX + "/history": {"GET": RouteOperation(VIEWER, "Every move of a sandbox's ledger.", [api.Move])},
}
# What is told of sandboxes is told of route groups, and of which of a name, living and ended, `uid` says.
for _what in ("report", "why", "outputs", "attempts", "log", "logs", "history"):
    _tells = ROUTES[f"{_SANDBOX}/{_what}"]["GET"]
    _tells = _tells._replace(query={**_tells.query, "uid": "string"})
    ROUTES[f"{_SANDBOX}/{_what}"] = {"GET": _tells}
    ROUTES[f"{_GROUP}/{_what}"] = {"GET": _tells._replace(says=_tells.says.replace("sandbox", "route group"))}


WITH_TAGS = (_SANDBOX, _GROUP, _PLUGIN, _CLUSTER, _ORG + "/workloads/{namespace}/{name}")
"""Addresses of objects that have an ETag and whose changes may have preconditions."""

_LIVING = (_ORG + "/sandboxes", _ORG + "/routegroups")
_OF_ALL_LIVING = (_ORG + "/changes", _ORG + "/attention", _ORG + "/ended-sandboxes", "/workloads/routing-rules")
_ITSELF = ("/page/links", "/page/session")


def reach(path: str, method: str) -> Reach:
    """Which keys with a scope an operation is open to: an address that nobody thought of, none."""
    if path.startswith(_LIVING) or path in _OF_ALL_LIVING:
        return Reach.LIVING
    if path in _ITSELF or (method == "GET" and ROUTES[path][method].role is VIEWER):
        return Reach.COMMON
    return Reach.PLUGIN if path == _PLUGIN else Reach.WHOLE
