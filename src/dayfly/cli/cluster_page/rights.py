"""What whoever asks may not do in a namespace, so that no button is there which the cluster would refuse.

It is only asked beforehand: the API server judges each request again. Where it does not say, nothing is denied here.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from dayfly.kube import errors
from dayfly.kube.objects import anything

if TYPE_CHECKING:
    from dayfly.kube.client import Client

_GROUP = "dayfly.dev"
_REVIEWS = anything("authorization.k8s.io/v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", namespaced=False)
_MYSELF = anything("authentication.k8s.io/v1", "SelfSubjectReview", "selfsubjectreviews", namespaced=False)
# By what is asked for, what becomes impossible without it.
_ASKED = {
    ("delete", _GROUP, "sandboxes"): ("delete",),
    ("patch", _GROUP, "sandboxes"): ("extend", "retry", "abandon"),
    ("get", "", "secrets"): ("outputs",),
}
# Rights change seldom, and a report is asked for at each change.
_KNOWN_S = 60.0


async def user(client: Client) -> str:
    """Who asks, as the cluster knows them; empty where it does not say."""
    body = {"apiVersion": _MYSELF.api_version, "kind": _MYSELF.kind}
    try:
        found = await client.create(_MYSELF, body)
    except errors.ApiError:
        return ""
    return str(((found.get("status") or {}).get("userInfo") or {}).get("username") or "")


class Rights:
    """Of the kubeconfig's user."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._known: dict[str, tuple[float, dict[str, str]]] = {}

    async def denied(self, namespace: str) -> dict[str, str]:
        """What cannot be done to the Sandboxes of a namespace, and why."""
        time = asyncio.get_running_loop().time()
        at, found = self._known.get(namespace, (0.0, {}))
        if not at or time - at > _KNOWN_S:
            said = await asyncio.gather(*(self._why(namespace, *asked) for asked in _ASKED))
            found = {each: why for whats, why in zip(_ASKED.values(), said, strict=True) if why for each in whats}
            self._known[namespace] = time, found
        return found

    async def _why(self, namespace: str, verb: str, group: str, resource: str) -> str:
        attributes = {"namespace": namespace, "verb": verb, "group": group, "resource": resource}
        body = {"apiVersion": _REVIEWS.api_version, "kind": _REVIEWS.kind, "spec": {"resourceAttributes": attributes}}
        try:
            found: dict[str, Any] = await self._client.create(_REVIEWS, body)
        except errors.ApiError:
            return ""
        if (found.get("status") or {}).get("allowed", True):
            return ""
        return (
            f'you may not {verb} {resource} in namespace "{namespace}"; ask the cluster\'s administrator for that right'
        )
