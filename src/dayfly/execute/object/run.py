"""Changes to objects, with the rights of a ServiceAccount of their namespace, never with those of the operator."""

import contextlib
import time
from collections.abc import Callable
from typing import Any, Final

from dayfly.execute.object import read
from dayfly.execute.object.render import FINALIZER
from dayfly.execute.pod import names
from dayfly.kube import errors
from dayfly.kube.client import KubeClient
from dayfly.kube.discovery import definition_uid, find_served_kind, is_definition_gone, list_other_versions
from dayfly.kube.forms import Propagation, Style
from dayfly.kube.objects import NAMESPACES, SECRETS, ApiResource, untyped_resource
from dayfly.plan import messages
from dayfly.spec.errors import with_article

ACCOUNT: Final = "dayfly-objects"
# Extra user info that identifies these requests for Dayfly's admission policies. No other user may impersonate it.
EXTRA: Final = {f"{names.GROUP}/objects": "true"}
_KIND_CACHE_S = 60.0

Manifest = dict[str, Any]
Kind = ApiResource[dict[str, Any]]


class NotServedError(Exception):
    """The API server does not serve the kind, or the kind is not namespaced; the text has details."""

    def __init__(self, message: str, *, scope: bool = False) -> None:
        super().__init__(message)
        self.scope = scope


def account(namespace: str) -> str:
    """Return the user that creates the objects of a namespace."""
    return f"system:serviceaccount:{namespace}:{ACCOUNT}"


class ObjectClient:
    """A client for objects of any kind. Every read is a quorum read, and every change names the UID of the object."""

    def __init__(self, client: KubeClient, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._clock = clock
        self._kinds: dict[tuple[str, str], tuple[float, Kind]] = {}

    async def discover_kind(self, api_version: str, kind: str) -> Kind:
        """Discover a namespaced kind.

        Raises:
            NotServedError: The kind is not served, or not namespaced.
            errors.ApiError: The request failed.
        """
        until, known = self._kinds.get((api_version, kind), (0.0, None))
        if known is not None and self._clock() < until:
            return known
        seen = await find_served_kind(self._client, api_version, kind)
        if seen is None:
            raise NotServedError(messages.kind_not_served(kind, api_version))
        if not seen.namespaced:
            raise NotServedError(
                f"{with_article(kind)} of {api_version} is cluster-scoped, and steps may not create one", scope=True
            )
        found = untyped_resource(api_version, kind, seen.name)
        self._kinds[api_version, kind] = self._clock() + _KIND_CACHE_S, found
        return found

    async def discover_existing_kind(self, api_version: str, kind: str, definition: str) -> Kind | None:
        """Discover the kind of existing objects, in this version or in another one of the group.

        Args:
            api_version: The version in which the objects were created.
            kind: Their kind.
            definition: The kind's CustomResourceDefinition at that time, as NAME/UID; empty if it has none.

        Returns:
            The kind; None if its definition was deleted, which proves that its objects are gone.

        Raises:
            NotServedError: No version is served, which proves nothing about the objects.
            errors.ApiError: The request failed.
        """
        try:
            return await self.discover_kind(api_version, kind)
        except NotServedError as missing:
            if missing.scope:
                raise
            name, _, uid = definition.partition("/")
            with contextlib.suppress(errors.Refused):
                if uid and await is_definition_gone(self._client, name, uid):
                    return None
            for version in await list_other_versions(self._client, api_version, kind):
                return await self.discover_kind(version, kind)
            raise NotServedError(messages.kind_lost(kind, api_version, name, proves=bool(uid))) from missing

    async def read_definition(self, kind: Kind) -> str:
        """Return the current CustomResourceDefinition of a kind, as NAME/UID; empty if it has none."""
        uid = await definition_uid(self._client, kind) if "." in kind.group else ""
        return f"{kind.plural}.{kind.group}/{uid}" if uid else ""

    def _forget_kind(self, kind: Kind) -> NotServedError:
        """Remove the kind from the cache and return the error."""
        self._kinds.pop((kind.api_version, kind.kind), None)
        return NotServedError(messages.kind_not_served(kind.kind, kind.api_version))

    def _account_client(self, namespace: str) -> KubeClient:
        return self._client.acting_as(account(namespace), EXTRA)

    async def find(self, kind: Kind, name: str, namespace: str) -> Manifest | None:
        """Read the object; None if there is none.

        Raises:
            errors.Forbidden: The account may not read it.
            NotServedError: The kind is no longer served, so its objects cannot be read.
        """
        try:
            return await self._account_client(namespace).find(kind, name, namespace)
        except errors.Forbidden:
            # The deletion of a namespace deletes the rights in it. A missing namespace has no objects.
            if await self._client.find(NAMESPACES, namespace) is None:
                return None
            raise
        except errors.NotServed as missing:
            raise self._forget_kind(kind) from missing

    async def is_ending(self, namespace: str) -> bool:
        """Return whether the namespace is being deleted. Its rights are then gone and cannot be granted again."""
        found = await self._client.find(NAMESPACES, namespace)
        return found is not None and found.metadata.deletion_timestamp is not None

    async def read_secret(self, name: str, namespace: str) -> dict[str, bytes] | None:
        """Read the data of a Secret; None if there is none.

        Raises:
            errors.Forbidden: The account may not read it.
        """
        found = await self._account_client(namespace).find(SECRETS, name, namespace)
        return None if found is None else found.data or {}

    async def dry_run(self, kind: Kind, manifest: Manifest) -> None:
        """Check with dry-run requests that the account may create, patch and delete the object.

        No object has the name yet, so the results of patch and delete depend only on the account's rights. Both
        requests name the UID of the run, which matches no other object.

        Raises:
            errors.Refused: The API server refuses the object, or the account lacks a right.
        """
        meta = manifest["metadata"]
        namespace, name, [owner] = meta["namespace"], meta["name"], meta["ownerReferences"]
        acting = self._account_client(namespace)
        with contextlib.suppress(errors.NotFound, errors.Conflict):
            await acting.patch(kind, {"metadata": {"uid": owner["uid"]}}, name, namespace, dry_run=True)
        with contextlib.suppress(errors.NotFound, errors.Conflict):
            await acting.delete(kind, name, namespace, uid=owner["uid"], dry_run=True)
        try:
            await acting.create(kind, manifest, namespace, dry_run=True)
        except errors.Refused as error:
            if "dry run" not in error.message:  # an admission webhook without support for dry-run is called later
                raise

    async def create(self, kind: Kind, manifest: Manifest) -> Manifest:
        """Create the object.

        Raises:
            errors.AlreadyExists: The name is taken, perhaps by an earlier try.
            errors.Refused: The API server refuses the object.
        """
        namespace = manifest["metadata"]["namespace"]
        return await self._account_client(namespace).create(kind, manifest, namespace)

    async def patch(self, kind: Kind, found: Manifest, patch: Manifest) -> None:
        """Patch the object. The patch names its UID, so an object that was replaced is not changed."""
        meta = found["metadata"]
        with contextlib.suppress(errors.NotFound, errors.Conflict):
            await self._account_client(meta["namespace"]).patch(kind, patch, meta["name"], meta["namespace"])

    async def delete(self, kind: Kind, found: Manifest, *, unchanged: bool = False) -> None:
        """Delete the object in the foreground; with `unchanged` only if it still has this resource version."""
        meta = found["metadata"]
        if read.is_ending(found):
            return
        with contextlib.suppress(errors.NotFound, errors.Conflict):
            await self._account_client(meta["namespace"]).delete(
                kind,
                meta["name"],
                meta["namespace"],
                uid=meta["uid"],
                resource_version=meta["resourceVersion"] if unchanged else "",
                propagation=Propagation.FOREGROUND,
            )

    async def remove_finalizer(self, kind: Kind, found: Manifest) -> None:
        """Remove Dayfly's finalizer from the object. The call is idempotent.

        Raises:
            errors.ApiError: The finalizer may still be present.
            NotServedError: Likewise, because the kind is no longer served.
        """
        for _ in range(3):
            meta = found["metadata"]
            finalizers = meta.get("finalizers") or []
            if FINALIZER not in finalizers:
                return
            at = finalizers.index(FINALIZER)
            operations = [
                {"op": "test", "path": "/metadata/uid", "value": meta["uid"]},
                {"op": "test", "path": f"/metadata/finalizers/{at}", "value": FINALIZER},
                {"op": "remove", "path": f"/metadata/finalizers/{at}"},
            ]
            acting = self._account_client(meta["namespace"])
            try:
                await acting.patch(kind, operations, meta["name"], meta["namespace"], style=Style.JSON)
                return
            except errors.NotFound:
                return
            except errors.NotServed as missing:
                raise self._forget_kind(kind) from missing
            except (errors.Conflict, errors.Invalid) as fault:
                refused = fault
            seen = await self.find(kind, meta["name"], meta["namespace"])
            if seen is None or seen["metadata"]["uid"] != meta["uid"]:
                return
            found = seen
        raise refused
