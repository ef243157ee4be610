"""Endpoints of Signadot's API that Dayfly does not support. The error names the feature instead of an unknown path."""

from __future__ import annotations

import re

from dayfly.server.http.route_table import API

LOGIN = f"{API}/auth/device"
"""Clients log in below this path, without a key."""

_FAMILY = re.compile(rf"{API}/orgs/[^/]+/([^/]+)(?:/.*)?", re.DOTALL)
_SINGLE = {
    re.compile(rf"{LOGIN}/(code|token|token/refresh)"): (
        "login by a browser; use a key: signadot auth login --with-api-key KEY (dayfly key create NAME makes one)"
    ),
    re.compile(rf"{API}/meta/plans"): "plans of that kind",
    re.compile(rf"{API}/orgs/[^/]+/clusters/[^/]+/devmesh/analyze"): (
        "analysis of DevMesh: it has no sidecars, a Gateway routes requests"
    ),
    re.compile(r"/api/v1/orgs/[^/]+/(sandboxes|clusters)(/status)?"): "API of version 1: use /api/v2",
}
_WHAT = {
    "jobs": "jobs",
    "runnergroups": "runner groups of jobs",
    "artifacts": "artifacts of jobs",
    "secrets": "secrets of an organisation",
    "devboxes": "devboxes",
    "service-accounts": "service accounts (it gives keys to programs: dayfly key create)",
    "users": "users (it gives keys to people: dayfly key create)",
    "events": "event log (it has /changes, /audit and CloudEvents)",
    "tests": "tests of its own",
    **dict.fromkeys(
        ("plans", "plan-tags", "plan-actions", "plan-runnergroups", "plan-runnergroup-settings"), "plans of that kind"
    ),
}


def describe_unsupported(path: str) -> str:
    """Return the feature of Signadot that a path belongs to and Dayfly does not support; "" for other paths."""
    if single := next((what for pattern, what in _SINGLE.items() if pattern.fullmatch(path)), ""):
        return single
    found = _FAMILY.fullmatch(path)
    return _WHAT.get(found[1], "") if found else ""
