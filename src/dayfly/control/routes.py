"""The table of all addresses: which methods each has, and the least role that a key needs for it.

An address that is not in here cannot be served: `exchange.serve` asks for it. `None` stands for no key at all.
"""

from __future__ import annotations

from typing import NamedTuple

from dayfly.control.auth import Role

API = "/api/v2"
VIEWER, MEMBER, ADMIN = Role.VIEWER, Role.MEMBER, Role.ADMIN


class Operation(NamedTuple):
    """One method of one address.

    Attributes:
        role: The least that the caller's key needs; None where no key is asked for.
        says: What it does, in a line.
    """

    role: Role | None
    says: str


_ORG = "/orgs/{org}"
_CLUSTER = _ORG + "/clusters/{name}"
_PLUGIN = _ORG + "/resource-plugins/{name}"
_SANDBOX = _ORG + "/sandboxes/{name}"

ROUTES: dict[str, dict[str, Operation]] = {
    "/meta/health": {"GET": Operation(None, "Whether the server and its store answer.")},
    "/meta/reasons": {"GET": Operation(VIEWER, "Every reason that is said, and what it means.")},
    "/orgs": {"GET": Operation(VIEWER, "The organisation of the key.")},
    _ORG + "/clusters": {"GET": Operation(VIEWER, "All clusters.")},
    _CLUSTER: {
        "GET": Operation(VIEWER, "A cluster."),
        "PUT": Operation(ADMIN, "Add a cluster; one that is there stays as it is."),
        "DELETE": Operation(ADMIN, "Remove a cluster and its tokens."),
    },
    _CLUSTER + "/tokens": {
        "GET": Operation(ADMIN, "The tokens of a cluster's agents, without their secrets."),
        "POST": Operation(ADMIN, "Make a token; its secret is in this answer alone."),
    },
    _CLUSTER + "/tokens/{id}": {
        "GET": Operation(ADMIN, "A token, without its secret."),
        "DELETE": Operation(ADMIN, "Revoke a token."),
    },
    _ORG + "/keys": {
        "GET": Operation(ADMIN, "The keys of users, without their secrets."),
        "POST": Operation(ADMIN, "Make a key; its secret is in this answer alone."),
    },
    _ORG + "/keys/{id}": {"DELETE": Operation(ADMIN, "Revoke a key.")},
    _ORG + "/audit": {"GET": Operation(ADMIN, "Who did what, the oldest first.")},
    _ORG + "/resource-plugins": {"GET": Operation(VIEWER, "All resource plugins.")},
    _PLUGIN: {
        "GET": Operation(VIEWER, "One version of a plugin, the highest if none is named."),
        "PUT": Operation(ADMIN, "Publish a version of a plugin."),
        "DELETE": Operation(ADMIN, "Remove a version of a plugin that no sandbox uses."),
    },
    _PLUGIN + "/versions": {"GET": Operation(VIEWER, "All versions of a plugin, the highest first.")},
    _ORG + "/workloads": {"GET": Operation(VIEWER, "All baselines.")},
    _ORG + "/workloads/{namespace}/{name}": {
        "GET": Operation(VIEWER, "A baseline."),
        "PUT": Operation(MEMBER, "Declare a baseline, or change it."),
        "DELETE": Operation(MEMBER, "Remove a baseline that no fork derives from."),
    },
    _ORG + "/sandboxes": {"GET": Operation(VIEWER, "All sandboxes.")},
    _SANDBOX: {
        "GET": Operation(VIEWER, "A sandbox."),
        "PUT": Operation(MEMBER, "Make a sandbox, or change it."),
        "DELETE": Operation(MEMBER, "End a sandbox."),
    },
    _SANDBOX + "/abandon": {"POST": Operation(MEMBER, "End a sandbox without its cleanup.")},
    _SANDBOX + "/retry": {"POST": Operation(MEMBER, "Try again now what waits to be tried again.")},
    _SANDBOX + "/lease": {"PUT": Operation(MEMBER, "Keep a sandbox for so long from now.")},
    _SANDBOX + "/status/explain": {"GET": Operation(VIEWER, "Not here.")},
    _SANDBOX + "/report": {"GET": Operation(VIEWER, "How each unit of a sandbox stands.")},
    _SANDBOX + "/why": {"GET": Operation(VIEWER, "What a sandbox waits for, down to the root.")},
    _SANDBOX + "/outputs": {"GET": Operation(MEMBER, "All outputs, sensitive ones too.")},
    _SANDBOX + "/attempts": {"GET": Operation(VIEWER, "The logs that there are.")},
    _SANDBOX + "/log": {"GET": Operation(VIEWER, "A piece of one log.")},
    _SANDBOX + "/logs": {"GET": Operation(VIEWER, "The newest logs of a resource, a step or a fork.")},
    _SANDBOX + "/history": {"GET": Operation(VIEWER, "Every move of a sandbox's ledger.")},
}
