"""What is done to VirtualServices: rules of ours put in and taken out, and those that are ours made and taken away.

Each write names the UID and the version that were seen, and of somebody else's changes the list of rules alone.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dayfly.execute.istio.read import SHARED_LABEL, VirtualService
from dayfly.execute.istio.rules import Rule, mark_of, marks, others
from dayfly.execute.pod.names import derive_name
from dayfly.kube import errors
from dayfly.kube.client import Client
from dayfly.kube.objects import Key, Resource

GROUP, VERSION = "networking.istio.io", "v1"
VIRTUAL_SERVICES = Resource(GROUP, VERSION, "virtualservices", "VirtualService", VirtualService)
KINDS = (VIRTUAL_SERVICES,)

Weave = Callable[[Sequence[Rule]], Sequence[Rule]]


class ForeignVirtualServiceError(Exception):
    """A VirtualService with the name of ours is not ours."""


class AlteredRulesError(Exception):
    """The server would keep rules of ours in another form, in which they would fit other requests."""


def shared_name(service: str) -> str:
    """Of the VirtualService that all forks of a Service share."""
    return derive_name("dayfly", service, "mesh", service)


def shared(key: Key, service: str) -> dict[str, Any]:
    """A VirtualService that leads nobody anywhere else: what is woven into it alone matters."""
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
    """Every read is a quorum read."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def left(self, run: str, fork: str, namespace: str) -> list[VirtualService]:
        """Those of a namespace with rules for a fork, as they are now.

        Raises:
            errors.ApiError: the server cannot be asked.
        """
        try:
            found = (await self._client.list_all(VIRTUAL_SERVICES, namespace)).items
        except errors.NotServed:
            return []  # nothing of that kind is served any more
        return [each for each in found if any(m.run == run and m.fork == fork for m in marks(each.rules))]

    async def share(self, key: Key, service: str, owner: Mapping[str, Any], weave: Weave) -> None:
        """Make the one that forks of a Service share, with rules in it; or put them into the one that a peer has made.

        Raises:
            ForeignVirtualServiceError: the name is taken by somebody else's.
            AlteredRulesError: the rules would be kept in a form that fits other requests.
            errors.Refused: the server does not admit it.
        """
        found = await self._client.find(VIRTUAL_SERVICES, key.name, key.namespace)
        if found is not None:
            await self._change(found, weave, owner)
            return
        manifest = shared(key, service)
        manifest["metadata"]["ownerReferences"] = [dict(owner)]
        manifest["spec"]["http"] = list(weave(manifest["spec"]["http"]))
        _check(
            await self._client.create(VIRTUAL_SERVICES, manifest, key.namespace, dry_run=True), manifest["spec"]["http"]
        )
        await self._client.create(VIRTUAL_SERVICES, manifest, key.namespace)

    async def change(self, key: Key, weave: Weave) -> None:
        """Put rules into somebody's, or take them out; one that is gone needs none.

        Raises:
            AlteredRulesError: the rules would be kept in a form that fits other requests.
            errors.Conflict: somebody else was faster.
            errors.Refused: the server does not admit it.
        """
        try:
            found = await self._client.find(VIRTUAL_SERVICES, key.name, key.namespace)
        except errors.NotServed:
            return  # nothing of that kind is served any more
        if found is not None and not found.metadata.deletion_timestamp:
            await self._change(found, weave)

    async def _change(self, seen: VirtualService, weave: Weave, owner: Mapping[str, Any] | None = None) -> None:
        meta, rules = seen.metadata, list(weave(seen.rules))
        if owner is not None and not seen.is_ours:
            raise ForeignVirtualServiceError(
                f"VirtualService {Key.of(seen)} exists and does not belong to Dayfly; delete it"
            )
        if others(rules) != others(seen.rules):
            raise AssertionError("what is somebody else's stays as it is")
        if seen.is_ours and not marks(rules):
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
    """What a server does not know of a rule it drops: without the key in it, it would take everybody's requests."""
    if _asked(kept.rules) != _asked(rules):
        raise AlteredRulesError(
            f"the API server would keep VirtualService {Key.of(kept)} without some of what its rules ask for, so it is "
            "not changed: Istio's definitions may be too old, or something alters VirtualServices on their way"
        )


def _asked(rules: Sequence[Mapping[str, Any]]) -> list[Any]:
    return [(mark_of(rule), rule.get("match")) for rule in rules]
