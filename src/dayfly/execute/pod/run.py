"""What is done to pods: created behind the gate, let go, removed, released. Each change names the UID it means."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from dayfly.execute.pod import names, render
from dayfly.execute.pod.logs import Splitter
from dayfly.execute.pod.render import MAIN
from dayfly.kube import errors
from dayfly.kube.client import Client
from dayfly.kube.forms import Style
from dayfly.kube.objects import PODS, Pod

# The whole log of a pod that has ended is on its node's disk; it may be megabytes.
READING_S = 30.0
_WHOLE_POD = PODS.read_as(dict[str, Any])


class ForeignPodError(Exception):
    """A pod with our name is not ours: somebody else made it."""


class Pods:
    """Pods of exec units, in whatever namespace their runner has."""

    def __init__(self, client: Client, heard: Callable[[Pod], None] = lambda _: None) -> None:
        """`heard` is told how the server says that a pod is after a change of ours."""
        self._client = client
        self._heard = heard

    async def prepare(self, manifest: dict[str, Any]) -> dict[str, Any] | None:
        """Create a gated pod; the pod as it is stored. None if an earlier try, of ours or a peer's, has created it.

        Raises:
            ForeignPodError: the name is taken by a pod that is not ours.
            errors.Refused: the server does not admit it.
        """
        metadata = manifest["metadata"]
        try:
            return await self._client.create(_WHOLE_POD, manifest, metadata["namespace"])
        except (errors.AlreadyExists, errors.OutcomeUnknown) as fault:
            try:
                found = await self._client.get(_WHOLE_POD, metadata["name"], metadata["namespace"])
            except errors.NotFound:
                raise fault from None
            if not _is_ours(found, manifest):
                raise ForeignPodError(
                    f"pod {metadata['namespace']}/{metadata['name']} exists and does not belong to Dayfly; delete it"
                ) from None
            return None

    async def whole(self, pod: Pod) -> dict[str, Any] | None:
        """All of that very pod, as it is stored now; None if it is gone."""
        found = await self._client.find(_WHOLE_POD, pod.metadata.name, pod.metadata.namespace)
        return found if found is not None and found["metadata"]["uid"] == pod.metadata.uid else None

    async def let_go(self, pod: Pod) -> bool:
        """Remove the gate. Doing it twice is doing it once; a pod of another UID is left alone.

        False if it is not as it was seen: then it is to be looked at again.
        """
        gates = [gate.name for gate in pod.spec.scheduling_gates or ()]
        if names.GATE not in gates:
            return True
        at = gates.index(names.GATE)
        operations = [
            {"op": "test", "path": "/metadata/uid", "value": pod.metadata.uid},
            {"op": "test", "path": f"/spec/schedulingGates/{at}/name", "value": names.GATE},
            {"op": "remove", "path": f"/spec/schedulingGates/{at}"},
        ]
        return await self._json(pod, operations)

    async def remove(self, pod: Pod, *, grace: int | None = None) -> None:
        """Ask for its deletion; our finalizer keeps what it tells until `release`."""
        if pod.metadata.deletion_timestamp:
            return
        try:
            await self._client.delete(
                PODS, pod.metadata.name, pod.metadata.namespace, uid=pod.metadata.uid, grace=grace
            )
        except (errors.NotFound, errors.Conflict):
            return

    async def recall(self, pod: Pod, image: str, now: int) -> bool:
        """Add the container in which the runner excludes the start of the step; `now` is unix milliseconds.

        A second recall changes nothing. False if there is no such way: the pod lacks that very image, or the cluster
        does not admit the change.
        """
        stored = await self.whole(pod)
        if stored is None:
            return True
        added = stored["spec"].get("ephemeralContainers") or []
        if any(each["name"].startswith(names.RECALL) for each in added):
            return True
        if any(each["name"] == MAIN and each["image"] == image for each in stored["spec"]["containers"]):
            return False
        meta = {"uid": pod.metadata.uid, "resourceVersion": stored["metadata"]["resourceVersion"]}
        patch = {"metadata": meta, "spec": {"ephemeralContainers": [*added, render.recall(image, now)]}}
        try:
            # The answer is not passed to `heard`: the watch delivers it with the clock of the next turn.
            await self._client.patch(
                PODS, patch, pod.metadata.name, pod.metadata.namespace, subresource="ephemeralcontainers"
            )
        except (errors.NotFound, errors.Conflict):
            return True  # gone, or changed in the meantime: the next turn sees which
        except errors.Refused:
            return False
        return True

    async def release(self, pod: Pod) -> bool:
        """Its result is recorded: let it vanish. False if it is not as it was seen, and may still be held by us."""
        await self.remove(pod)
        finalizers = list(pod.metadata.finalizers or ())
        if names.FINALIZER not in finalizers:
            return True
        at = finalizers.index(names.FINALIZER)
        operations = [
            {"op": "test", "path": "/metadata/uid", "value": pod.metadata.uid},
            {"op": "test", "path": f"/metadata/finalizers/{at}", "value": names.FINALIZER},
            {"op": "remove", "path": f"/metadata/finalizers/{at}"},
        ]
        return await self._json(pod, operations)

    async def _json(self, pod: Pod, operations: list[dict[str, Any]]) -> bool:
        try:
            name, namespace = pod.metadata.name, pod.metadata.namespace
            self._heard(await self._client.patch(PODS, operations, name, namespace, style=Style.JSON))
        except (errors.NotFound, errors.Conflict, errors.Invalid):
            # Gone, another one, or done already: the next turn sees which.
            return False
        return True

    async def contents(self, pod: Pod, digest: str) -> dict[str, bytes] | None:
        """The outputs from the document at the end of the log; None if the log has no whole document of that digest.

        Raises:
            errors.ApiError: the log cannot be read at this moment, which tells nothing of what is in it.
        """
        splitter, log = Splitter(), self._client.log(pod.metadata.name, pod.metadata.namespace, container=MAIN)
        try:
            async with asyncio.timeout(READING_S), contextlib.aclosing(log) as chunks:
                async for chunk in chunks:
                    splitter.feed(chunk)
        except TimeoutError:
            raise errors.ServerTrouble(f"log of pod {pod.metadata.name}", f"no end within {READING_S:g} s") from None
        except errors.Refused as no:
            if isinstance(no, (errors.Unauthorized, errors.Forbidden)):
                raise  # whoever may not read it now may once he is granted it
            return None
        return splitter.contents() if splitter.digest == digest else None


def _is_ours(found: dict[str, Any], manifest: dict[str, Any]) -> bool:
    """Whether a pod of that name is the very one we meant: owner, nonce and finalizer, which nobody else can know."""
    meta, wanted = found["metadata"], manifest["metadata"]
    owners = [owner.get("uid") for owner in meta.get("ownerReferences") or ()]
    nonce = (meta.get("annotations") or {}).get(names.NONCE_ANNOTATION)
    return (
        wanted["ownerReferences"][0]["uid"] in owners
        and nonce == wanted["annotations"][names.NONCE_ANNOTATION]
        and names.FINALIZER in (meta.get("finalizers") or ())
    )
