"""Who may do what, in the authorizer's own words."""

from __future__ import annotations

from kube.fake.kinds import Kind
from kube.fake.refusals import Refusal

_VERBS = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


def verb(method: str, *, named: bool, watches: bool = False) -> str:
    """What a request does, as roles have it."""
    if watches:
        return "watch"
    return _VERBS[method] if named or method != "GET" else "list"


def forbidden(user: str, does: str, kind: Kind, name: str, where: str) -> Refusal:
    """What somebody hears who may not do it."""
    whom = f' "{name}"' if name else ""
    place = f'in API group "{kind.group}" {where}'
    message = f'{kind.qualified}{whom} is forbidden: User "{user}" cannot {does} resource "{kind.plural}" {place}'
    return Refusal(403, message)
