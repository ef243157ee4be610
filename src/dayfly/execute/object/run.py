"""What is done to objects, with the rights of an account of their namespace and never with the operator's own."""

import contextlib
import time
from collections.abc import Callable
from typing import Any, Final

from dayfly.execute.object import read
from dayfly.execute.object.render import FINALIZER
from dayfly.execute.pod import names
from dayfly.kube import errors
from dayfly.kube.client import Client
from dayfly.kube.discovery import definition_uid, is_definition_gone, served, served_elsewhere
from dayfly.kube.forms import Propagation, Style
from dayfly.kube.objects import NAMESPACES, SECRETS, Resource, anything
from dayfly.plan import messages
from dayfly.spec.errors import with_article

ACCOUNT: Final = "dayfly-objects"
# By this our admission policies know a request: nobody else may say so of himself.
EXTRA: Final = {f"{names.GROUP}/objects": "true"}
_BELIEVED_S = 60.0

Manifest = dict[str, Any]
Kind = Resource[dict[str, Any]]


class NotServedError(Exception):
    """The server has no objects of that kind, or none that lie in a namespace; the text says which."""

    def __init__(self, message: str, *, scope: bool = False) -> None:
        super().__init__(message)
        self.scope = scope


def account(namespace: str) -> str:
    """The user that objects of a namespace are made by."""
    return f"system:serviceaccount:{namespace}:{ACCOUNT}"


class ObjectClient:
    """Objects of any kind. Every read is a quorum read, and every change names the very object."""

    def __init__(self, client: Client, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._clock = clock
        self._kinds: dict[tuple[str, str], tuple[float, Kind]] = {}

    async def kind(self, api_version: str, kind: str) -> Kind:
        """How the API serves a kind.

        Raises:
            NotServedError: it serves none in namespaces.
            errors.ApiError: the server cannot be asked.
        """
        until, known = self._kinds.get((api_version, kind), (0.0, None))
        if known is not None and self._clock() < until:
            return known
        seen = await served(self._client, api_version, kind)
        if seen is None:
            raise NotServedError(messages.kind_not_served(kind, api_version))
        if not seen.namespaced:
            raise NotServedError(
                f"{with_article(kind)} of {api_version} lies in no namespace, and no step may make one", scope=True
            )
        found = anything(api_version, kind, seen.name)
        self._kinds[api_version, kind] = self._clock() + _BELIEVED_S, found
        return found

    async def kind_of_made(self, api_version: str, kind: str, definition: str) -> Kind | None:
        """Return how the API serves objects that were made: in this version, or in another one of the group.

        Args:
            api_version: The version in which they were made.
            kind: Their kind.
            definition: The kind's CustomResourceDefinition at that time, as NAME/UID; empty if it has none.

        Returns:
            The kind; None if its definition is gone, which proves that all its objects are.

        Raises:
            NotServedError: it is served in no version, and that proves nothing.
            errors.ApiError: the server did not answer.
        """
        try:
            return await self.kind(api_version, kind)
        except NotServedError as missing:
            if missing.scope:
                raise
            name, _, uid = definition.partition("/")
            with contextlib.suppress(errors.Refused):
                if uid and await is_definition_gone(self._client, name, uid):
                    return None
            for version in await served_elsewhere(self._client, api_version, kind):
                return await self.kind(version, kind)
            raise NotServedError(messages.kind_lost(kind, api_version, name, proves=bool(uid))) from missing

    async def definition(self, kind: Kind) -> str:
        """Return what defines a kind now, as NAME/UID; empty if no CustomResourceDefinition does."""
        uid = await definition_uid(self._client, kind) if "." in kind.group else ""
        return f"{kind.plural}.{kind.group}/{uid}" if uid else ""

    def _lost(self, kind: Kind) -> NotServedError:
        """How it was served is believed no more."""
        self._kinds.pop((kind.api_version, kind.kind), None)
        return NotServedError(messages.kind_not_served(kind.kind, kind.api_version))

    def _acting(self, namespace: str) -> Client:
        return self._client.acting_as(account(namespace), EXTRA)

    async def find(self, kind: Kind, name: str, namespace: str) -> Manifest | None:
        """The object as it is now; None if there is none.

        Raises:
            errors.Forbidden: the account may not look.
            NotServedError: its kind is served no more. What there is of it is out of sight.
        """
        try:
            return await self._acting(namespace).find(kind, name, namespace)
        except errors.Forbidden:
            # With a namespace go the rights in it: nothing is left there to look at.
            if await self._client.find(NAMESPACES, namespace) is None:
                return None
            raise
        except errors.NotServed as missing:
            raise self._lost(kind) from missing

    async def is_ending(self, namespace: str) -> bool:
        """Whether the namespace is being deleted: the rights in it go first, and nobody can give any there."""
        found = await self._client.find(NAMESPACES, namespace)
        return found is not None and found.metadata.deletion_timestamp is not None

    async def secret(self, name: str, namespace: str) -> dict[str, bytes] | None:
        """What a Secret holds; None if there is none.

        Raises:
            errors.Forbidden: the account may not look.
        """
        found = await self._acting(namespace).find(SECRETS, name, namespace)
        return None if found is None else found.data or {}

    async def try_out(self, kind: Kind, manifest: Manifest) -> None:
        """Have the server say whether it would take the object; nothing is stored.

        The account must also be able to release the object and to delete it. No object has the name yet, so the server
        answers these two requests by the account's rights only. The UID is the run's, so it fits no other object.

        Raises:
            errors.Refused: it would not, or the account lacks a right.
        """
        meta = manifest["metadata"]
        namespace, name, [owner] = meta["namespace"], meta["name"], meta["ownerReferences"]
        acting = self._acting(namespace)
        with contextlib.suppress(errors.NotFound, errors.Conflict):
            await acting.patch(kind, {"metadata": {"uid": owner["uid"]}}, name, namespace, dry_run=True)
        with contextlib.suppress(errors.NotFound, errors.Conflict):
            await acting.delete(kind, name, namespace, uid=owner["uid"], dry_run=True)
        try:
            await acting.create(kind, manifest, namespace, dry_run=True)
        except errors.Refused as error:
            if "dry run" not in error.message:  # a webhook that cannot be asked in vain is asked in earnest
                raise

    async def create(self, kind: Kind, manifest: Manifest) -> Manifest:
        """Make it.

        Raises:
            errors.AlreadyExists: its name is taken, perhaps by an earlier try of ours.
            errors.Refused: the server does not admit it.
        """
        namespace = manifest["metadata"]["namespace"]
        return await self._acting(namespace).create(kind, manifest, namespace)

    async def change(self, kind: Kind, found: Manifest, patch: Manifest) -> None:
        """Change that very object; the patch names its UID. One that is gone, or another by now, is left alone."""
        meta = found["metadata"]
        with contextlib.suppress(errors.NotFound, errors.Conflict):
            await self._acting(meta["namespace"]).patch(kind, patch, meta["name"], meta["namespace"])

    async def delete(self, kind: Kind, found: Manifest, *, unchanged: bool = False) -> None:
        """Ask that very object to go, after all that it has made; `unchanged`: only if it still is as it was found."""
        meta = found["metadata"]
        if read.ending(found):
            return
        with contextlib.suppress(errors.NotFound, errors.Conflict):
            await self._acting(meta["namespace"]).delete(
                kind,
                meta["name"],
                meta["namespace"],
                uid=meta["uid"],
                resource_version=meta["resourceVersion"] if unchanged else "",
                propagation=Propagation.FOREGROUND,
            )

    async def let_go(self, kind: Kind, found: Manifest) -> None:
        """Take our finalizer off that very object; done already, or gone, is as good.

        Raises:
            errors.ApiError: it may still be there.
            NotServedError: likewise; its kind is served no more.
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
            acting = self._acting(meta["namespace"])
            try:
                await acting.patch(kind, operations, meta["name"], meta["namespace"], style=Style.JSON)
                return
            except errors.NotFound:
                return
            except errors.NotServed as missing:
                raise self._lost(kind) from missing
            except (errors.Conflict, errors.Invalid) as fault:
                refused = fault
            seen = await self.find(kind, meta["name"], meta["namespace"])
            if seen is None or seen["metadata"]["uid"] != meta["uid"]:
                return
            found = seen
        raise refused
