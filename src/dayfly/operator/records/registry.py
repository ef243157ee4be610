"""Tokens of the resources of this installation, and the records of resources whose runs have ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dayfly.operator.records.record_store import EndedResource, RecordStore
from dayfly.operator.records.resource_key import load_identity
from dayfly.plan.leaks.records import record_resource
from dayfly.spec.resource_token import resource_token, verified_host

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dayfly.kube.client import KubeClient
    from dayfly.operator.cluster.objects import RunObject
    from dayfly.spec.lifecycle import Lifecycle
    from dayfly.spec.resource_token import HostIdentity


class ResourceRegistry:
    """Makes and verifies tokens, and records the resources of runs that end."""

    def __init__(self, client: KubeClient, namespace: str, now: Callable[[], int]) -> None:
        self._client = client
        self.namespace = namespace
        self._now = now
        self._identity: HostIdentity | None = None
        self.records = RecordStore(client, namespace, now)

    async def identity(self) -> HostIdentity:
        """Return the name and key of this installation.

        Raises:
            BrokenKeyError: the Secret with them cannot be used.
            errors.ApiError: the API server failed.
        """
        if self._identity is None:
            self._identity = await load_identity(self._client, self.namespace)
        return self._identity

    async def token(self, resource_id: str) -> str:
        """Return the token of a resource.

        Raises:
            BrokenKeyError, errors.ApiError: see `identity`.
        """
        known = await self.identity()
        return resource_token(known.key, known.host, resource_id)

    async def is_ours(self, token: str, resource_id: str) -> bool:
        """Return whether a token was made by this installation for this resource.

        Raises:
            BrokenKeyError, errors.ApiError: see `identity`.
        """
        known = await self.identity()
        return verified_host(known.key, token, resource_id) == known.host

    async def record_end(self, run: RunObject, documents: Iterable[Lifecycle]) -> None:
        """Record the resources of a run that has ended, before its ledger is deleted.

        Resources with inline steps have no record: no leak check could know their steps.

        Raises:
            errors.ApiError: they may not be recorded.
        """
        ledger, name = run.ledger, run.metadata.name
        found = (record_resource(ledger.uid, each, ledger.born_at) for each in documents)
        ended_at = ledger.ended_at or self._now()
        known = [each for each in found if each is not None and each.plugin]
        await self.records.add(EndedResource(each.id, each.publisher, each.plugin, ended_at, name) for each in known)
