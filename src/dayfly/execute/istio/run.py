"""Changes to VirtualServices: insert and remove Dayfly's rules, create and delete shared VirtualServices.

Each write names the UID and the resource version. In VirtualServices of other owners it changes only the list of rules.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dayfly.execute.istio.read import SHARED_LABEL, VirtualService
from dayfly.execute.istio.rules import Rule, owner_of, owners_of, rules_of_others
from dayfly.execute.pod.names import derive_name
from dayfly.kube import errors
from dayfly.kube.client import KubeClient
from dayfly.kube.objects import ApiResource, Key
from dayfly.plan import messages

GROUP, VERSION = "networking.istio.io", "v1"
VIRTUAL_SERVICES = ApiResource(GROUP, VERSION, "virtualservices", "VirtualService", VirtualService)
KINDS = (VIRTUAL_SERVICES,)

EditRules = Callable[[Sequence[Rule]], Sequence[Rule]]


class ForeignVirtualServiceError(Exception):
    """A VirtualService with the shared name exists and was not created by Dayfly."""


class AlteredRulesError(Exception):
    """The API server would store Dayfly's rules in a form that matches other requests."""


def shared_name(service: str) -> str:
    """Return the name of the VirtualService that all forks of a Service share."""
    return derive_name("dayfly", service, "mesh", service)


def render_shared(key: Key, service: str) -> dict[str, Any]:
    """Return a VirtualService that does not change routing by itself, so that only its inserted rules matter."""
    return {
        "apiVersion": VIRTUAL_SERVICES.api_version,
        "kind": VIRTUAL_SERVICES.kind,
        "metadata": {
            "name": key.name,
            "namespace": key.namespace,
            "labels": {SHARED_LABEL: service, "app.kubernetes.io/managed-by": "dayfly"},
        },
        "spec": {"hosts": [service], "http": [{"route": [{"destination": {"host": service}}]}]},
    }


class VirtualServices:
    """A client for VirtualServices. Every read is a quorum read."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def list_of_fork(self, run: str, fork: str, namespace: str) -> list[VirtualService]:
        """List the VirtualServices of a namespace with rules for a fork.

        Raises:
            errors.ApiError: The request failed.
        """
        try:
            found = (await self._client.list_all(VIRTUAL_SERVICES, namespace)).items
        except errors.NotServed:
            return []  # the kind is no longer served
        return [each for each in found if any(m.run == run and m.fork == fork for m in owners_of(each.rules))]

    async def ensure_shared(self, key: Key, service: str, owner: Mapping[str, Any], edit: EditRules) -> None:
        """Create the shared VirtualService of a Service with rules, or insert the rules if it exists.

        Raises:
            ForeignVirtualServiceError: An object with this name was not created by Dayfly.
            AlteredRulesError: The stored rules would match other requests.
            errors.Refused: The API server refuses the object.
        """
        found = await self._client.find(VIRTUAL_SERVICES, key.name, key.namespace)
        if found is not None:
            await self._change(found, edit, owner)
            return
        manifest = render_shared(key, service)
        manifest["metadata"]["ownerReferences"] = [dict(owner)]
        manifest["spec"]["http"] = list(edit(manifest["spec"]["http"]))
        _check(
            await self._client.create(VIRTUAL_SERVICES, manifest, key.namespace, dry_run=True), manifest["spec"]["http"]
        )
        await self._client.create(VIRTUAL_SERVICES, manifest, key.namespace)

    async def update_rules(self, key: Key, edit: EditRules) -> None:
        """Insert or remove rules in an existing VirtualService; a missing one is ignored.

        Raises:
            AlteredRulesError: The stored rules would match other requests.
            errors.Conflict: Another client changed the object at the same time.
            errors.Refused: The API server refuses the change.
        """
        try:
            found = await self._client.find(VIRTUAL_SERVICES, key.name, key.namespace)
        except errors.NotServed:
            return  # the kind is no longer served
        if found is not None and not found.metadata.deletion_timestamp:
            await self._change(found, edit)

    async def _change(self, seen: VirtualService, edit: EditRules, owner: Mapping[str, Any] | None = None) -> None:
        meta, rules = seen.metadata, list(edit(seen.rules))
        if owner is not None and not seen.is_ours:
            raise ForeignVirtualServiceError(messages.foreign_object("VirtualService", meta.namespace, meta.name))
        if rules_of_others(rules) != rules_of_others(seen.rules):
            raise AssertionError("rules of other owners must not change")
        if seen.is_ours and not owners_of(rules):
            await self._client.delete(
                VIRTUAL_SERVICES, meta.name, meta.namespace, uid=meta.uid, resource_version=meta.resource_version
            )
            return
        identity = {"uid": meta.uid, "resourceVersion": meta.resource_version}
        patch: dict[str, Any] = {"metadata": identity, "spec": {"http": rules}}
        owners = [*(meta.owner_references or ())]
        if owner is not None and owner["uid"] not in {each.uid for each in owners}:
            patch["metadata"]["ownerReferences"] = [*map(_reference, owners), dict(owner)]
        elif rules == seen.rules:
            return
        _check(await self._patched(meta.name, meta.namespace, patch, dry_run=True), rules)
        await self._patched(meta.name, meta.namespace, patch)

    async def _patched(
        self, name: str, namespace: str, patch: dict[str, Any], *, dry_run: bool = False
    ) -> VirtualService:
        return await self._client.patch(VIRTUAL_SERVICES, patch, name, namespace, dry_run=dry_run)


def _reference(each: Any) -> dict[str, Any]:
    return {
        "apiVersion": each.api_version,
        "kind": each.kind,
        "name": each.name,
        "uid": each.uid,
        "blockOwnerDeletion": each.block_owner_deletion,
    }


def _check(kept: VirtualService, rules: Sequence[Rule]) -> None:
    """Check that the API server stores all matches.

    It drops unknown fields. A rule without its key match would receive all requests.
    """
    if _owned_matches(kept.rules) != _owned_matches(rules):
        raise AlteredRulesError(
            f"the API server would store VirtualService {Key.from_object(kept)} without some matches of its rules, so "
            "it is not changed: Istio's CustomResourceDefinitions may be too old, or a webhook changes VirtualServices"
        )


def _owned_matches(rules: Sequence[Mapping[str, Any]]) -> list[Any]:
    return [(owner_of(rule), rule.get("match")) for rule in rules]
