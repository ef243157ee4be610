"""Whether the operator may do with a kind's objects what a hook asks for, and the line to type where it may not."""

import contextlib
import re
from collections.abc import Callable

from dayfly.execute.pod import names
from dayfly.kube import errors
from dayfly.kube.client import Client
from dayfly.kube.objects import PartialObjectMetadata, Resource, anything

VERBS = "get,list,watch,patch"
# A ClusterRole with this label is among the operator's own rights (deploy/base/access.yaml).
LABEL = f"{names.GROUP}/targets"
# Kubernetes copies the rules of all such ClusterRoles into this one, which is bound to the operator.
ROLE = "dayfly-operator-targets"
ROLES = anything("rbac.authorization.k8s.io/v1", "ClusterRole", "clusterroles", namespaced=False)
BELIEVED_MS = 60_000
# The authorizer's own words: what we may not do, and with what.
_WANTED = re.compile(r'cannot (\w+) resource "([^"/]+)" in API group "([^"]*)"')


def line(resource: str) -> str:
    """What the cluster's administrator types to grant a kind, by its plural and group."""
    role = f"dayfly-targets-{resource}"
    return (
        f"kubectl create clusterrole {role} --verb={VERBS} --resource={resource} && "
        f"kubectl label clusterrole {role} {LABEL}=true"
    )


def sentence(refusal: str) -> str:
    """What is said where the server does not let us; empty if it is not for want of a right to a kind."""
    wanted = _WANTED.search(refusal)
    if wanted is None:
        return ""
    verb, plural, group = wanted.groups()
    resource = f"{plural}.{group}" if group else plural
    return f"the operator may not {verb} {resource}; the cluster's administrator can type: {line(resource)}"


class TargetGrants:
    """Asks the server, by a change of an object that changes nothing and is not stored."""

    def __init__(self, client: Client, now: Callable[[], int]) -> None:
        self._client = client
        self._now = now
        self._until: dict[tuple[str, str], int] = {}

    async def check(self, resource: Resource[PartialObjectMetadata], found: PartialObjectMetadata) -> None:
        """See whether its finalizers may be written, before anything is begun for it.

        Raises:
            errors.Forbidden: they may not.
        """
        kind, meta = (resource.group, resource.plural), found.metadata
        if self._now() < self._until.get(kind, 0):
            return
        patch = {"metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version}}
        with contextlib.suppress(errors.NotFound, errors.Conflict):  # it has changed, or is gone; we may
            await self._client.get(resource, meta.name, meta.namespace)
            await self._client.patch(resource, patch, meta.name, meta.namespace, dry_run=True)
        self._until[kind] = self._now() + BELIEVED_MS
