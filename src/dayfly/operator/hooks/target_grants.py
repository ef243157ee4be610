"""Whether the operator may change the objects that a hook selects, and the kubectl command that grants the right."""

import contextlib
import re
from collections.abc import Callable

from dayfly.execute.pod import names
from dayfly.kube import errors
from dayfly.kube.client import KubeClient
from dayfly.kube.objects import ApiResource, PartialObjectMetadata, untyped_resource

VERBS = "get,list,watch,patch"
# A ClusterRole with this label is among the operator's own rights (deploy/base/access.yaml).
LABEL = f"{names.GROUP}/targets"
# Kubernetes copies the rules of all such ClusterRoles into this one, which is bound to the operator.
ROLE = "dayfly-operator-targets"
ROLES = untyped_resource("rbac.authorization.k8s.io/v1", "ClusterRole", "clusterroles", namespaced=False)
CACHE_MS = 60_000
# The message of the API server's authorizer: the verb, the resource and the API group.
_WANTED = re.compile(r'cannot (\w+) resource "([^"/]+)" in API group "([^"]*)"')


def grant_command(resource: str) -> str:
    """Return the command with which an administrator grants the rights for a kind, by plural and group."""
    role = f"dayfly-targets-{resource}"
    return (
        f"kubectl create clusterrole {role} --verb={VERBS} --resource={resource} && "
        f"kubectl label clusterrole {role} {LABEL}=true"
    )


def describe_refusal(refusal: str) -> str:
    """Explain a rejection and the command that resolves it; empty if no right to a kind is missing."""
    wanted = _WANTED.search(refusal)
    if wanted is None:
        return ""
    verb, plural, group = wanted.groups()
    resource = f"{plural}.{group}" if group else plural
    return f"the operator may not {verb} {resource}; a cluster administrator can run: {grant_command(resource)}"


class TargetGrants:
    """Checks the right to change objects of a kind, with an empty patch as a dry run."""

    def __init__(self, client: KubeClient, now: Callable[[], int]) -> None:
        self._client = client
        self._now = now
        self._until: dict[tuple[str, str], int] = {}

    async def check(self, resource: ApiResource[PartialObjectMetadata], found: PartialObjectMetadata) -> None:
        """Check whether the finalizers of an object may be written, before the first run of its kind.

        Raises:
            errors.Forbidden: they may not.
        """
        kind, meta = (resource.group, resource.plural), found.metadata
        if self._now() < self._until.get(kind, 0):
            return
        patch = {"metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version}}
        with contextlib.suppress(errors.NotFound, errors.Conflict):  # it has changed or is gone, so the right exists
            await self._client.get(resource, meta.name, meta.namespace)
            await self._client.patch(resource, patch, meta.name, meta.namespace, dry_run=True)
        self._until[kind] = self._now() + CACHE_MS
