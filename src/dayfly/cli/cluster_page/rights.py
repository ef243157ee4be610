"""Denied actions of the user in a namespace; the page hides buttons whose requests the cluster would reject.

The API server still authorises each request. If it does not answer a review, nothing counts as denied here.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from dayfly.kube import errors
from dayfly.kube.objects import untyped_resource

if TYPE_CHECKING:
    from dayfly.kube.client import KubeClient

_GROUP = "dayfly.dev"
_REVIEWS = untyped_resource(
    "authorization.k8s.io/v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", namespaced=False
)
_MYSELF = untyped_resource("authentication.k8s.io/v1", "SelfSubjectReview", "selfsubjectreviews", namespaced=False)
# The actions of the page that need each right.
_ACTIONS = {
    ("delete", _GROUP, "sandboxes"): ("delete",),
    ("patch", _GROUP, "sandboxes"): ("extend", "retry", "abandon"),
    ("get", "", "secrets"): ("outputs",),
}
# Rights change rarely, and each change of a sandbox requests a report.
_CACHE_S = 60.0


async def user_name(client: KubeClient) -> str:
    """Return the name of the user in the cluster; empty if the API server does not return it."""
    body = {"apiVersion": _MYSELF.api_version, "kind": _MYSELF.kind}
    try:
        found = await client.create(_MYSELF, body)
    except errors.ApiError:
        return ""
    return str(((found.get("status") or {}).get("userInfo") or {}).get("username") or "")


class Rights:
    """The rights of the kubeconfig's user."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._known: dict[str, tuple[float, dict[str, str]]] = {}

    async def denied(self, namespace: str) -> dict[str, str]:
        """Return the actions that the user may not perform on Sandboxes of a namespace, with the reason."""
        time = asyncio.get_running_loop().time()
        at, found = self._known.get(namespace, (0.0, {}))
        if not at or time - at > _CACHE_S:
            reasons = await asyncio.gather(*(self._denial(namespace, *right) for right in _ACTIONS))
            found = {
                each: why for actions, why in zip(_ACTIONS.values(), reasons, strict=True) if why for each in actions
            }
            self._known[namespace] = time, found
        return found

    async def _denial(self, namespace: str, verb: str, group: str, resource: str) -> str:
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
