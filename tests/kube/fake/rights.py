"""Permissions, with the messages of the real authorizer."""

from __future__ import annotations

from tests.kube.fake.kinds import Kind
from tests.kube.fake.refusals import Refusal

_VERBS = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


def verb(method: str, *, named: bool, watches: bool = False) -> str:
    """Return the verb of a request, as in RBAC."""
    if watches:
        return "watch"
    return _VERBS[method] if named or method != "GET" else "list"


def forbidden(user: str, does: str, kind: Kind, name: str, where: str) -> Refusal:
    """Return the message of a refusal."""
    whom = f' "{name}"' if name else ""
    place = f'in API group "{kind.group}" {where}'
    message = f'{kind.qualified}{whom} is forbidden: User "{user}" cannot {does} resource "{kind.plural}" {place}'
    return Refusal(403, message)
