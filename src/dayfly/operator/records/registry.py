"""Tokens of the resources of this installation, and the records of resources whose runs have ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dayfly.operator.records.key_ring import GivenKey, add_key, load_keys
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
    """Makes and verifies tokens, and records the resources of runs that end.

    New tokens have the latest key that a server has given for an organisation of this operator, otherwise this
    installation's own key. Tokens by all known keys are recognised.
    """

    def __init__(self, client: KubeClient, namespace: str, now: Callable[[], int]) -> None:
        self._client = client
        self.namespace = namespace
        self._now = now
        self.orgs: frozenset[str] = frozenset()
        """The organisations whose keys make tokens. After a cluster has moved, the former organisation has no part."""
        self._identity: HostIdentity | None = None
        self._given: tuple[GivenKey, ...] | None = None
        self.records = RecordStore(client, namespace, now)

    async def identity(self) -> HostIdentity:
        """Return the name and key with which this installation makes tokens.

        Raises:
            BrokenKeyError: the Secrets with the keys cannot be used.
            errors.ApiError: the API server failed.
        """
        own, given = await self._load()
        return next((each.identity for each in reversed(given) if each.org in self.orgs), own)

    async def hosts(self) -> tuple[str, ...]:
        """Return the names of this installation in the tokens that it recognises.

        Raises:
            BrokenKeyError, errors.ApiError: see `identity`.
        """
        own, given = await self._load()
        return tuple(dict.fromkeys((own.host, *(each.identity.host for each in given))))

    async def has_given_key(self) -> bool:
        """Return whether a server has given the key with which tokens are made now.

        Raises:
            BrokenKeyError, errors.ApiError: see `identity`.
        """
        own, _ = await self._load()
        return await self.identity() != own

    async def adopt(self, org: str, identity: HostIdentity) -> None:
        """Store a key that a server has given for an organisation. When this returns, new tokens have it.

        Raises:
            BrokenKeyError, errors.ApiError: see `identity`.
        """
        self._given = await add_key(self._client, self.namespace, GivenKey(org, identity))

    def refresh(self) -> None:
        """Read the keys again: another replica may have stored one."""
        self._given = None

    async def _load(self) -> tuple[HostIdentity, tuple[GivenKey, ...]]:
        if self._identity is None:
            self._identity = await load_identity(self._client, self.namespace)
        if self._given is None:
            self._given = await load_keys(self._client, self.namespace)
        return self._identity, self._given

    async def token(self, resource_id: str) -> str:
        """Return the token of a resource.

        Raises:
            BrokenKeyError, errors.ApiError: see `identity`.
        """
        known = await self.identity()
        return resource_token(known.key, known.host, resource_id)

    async def is_ours(self, token: str, resource_id: str) -> bool:
        """Return whether a token was made by this installation for this resource, with any of its keys.

        Raises:
            BrokenKeyError, errors.ApiError: see `identity`.
        """
        own, given = await self._load()
        known = (own, *(each.identity for each in given))
        return any(verified_host(each.key, token, resource_id) == each.host for each in known)

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
        sandbox_uid = run.spec.offered.uid if run.spec.offered is not None else ""
        await self.records.add(
            EndedResource(each.id, each.publisher, each.plugin, ended_at, name, sandbox_uid) for each in known
        )
