"""Changes to pods: create with a gate, remove the gate, recall, delete, release.

A change of an existing pod applies only to the pod with the given UID.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from dayfly.execute.pod import names, render
from dayfly.execute.pod.logs import LogSplitter
from dayfly.execute.pod.render import MAIN
from dayfly.kube import errors
from dayfly.kube.client import KubeClient
from dayfly.kube.forms import Style
from dayfly.kube.objects import PODS, Pod
from dayfly.plan import messages

# Timeout for the read of a whole log, which may have megabytes.
LOG_TIMEOUT_S = 30.0
# The pod with all its fields; `Pod` has only a part of them.
_POD_AS_DICT = PODS.read_as(dict[str, Any])


class ForeignPodError(Exception):
    """A pod with the derived name exists and was not created by Dayfly."""


class PodClient:
    """Changes and reads the pods of steps and webhooks, in all namespaces."""

    def __init__(self, client: KubeClient, on_change: Callable[[Pod], None] = lambda _: None) -> None:
        """Initialize with a callback that receives each pod as the API server returns it after a change."""
        self._client = client
        self._on_change = on_change

    async def prepare(self, manifest: dict[str, Any]) -> dict[str, Any] | None:
        """Create a gated pod and return it as stored; None if this or another replica has created it before.

        Raises:
            ForeignPodError: A pod with this name was not created by Dayfly.
            errors.Refused: The API server refuses the pod.
        """
        metadata = manifest["metadata"]
        try:
            return await self._client.create(_POD_AS_DICT, manifest, metadata["namespace"])
        except (errors.AlreadyExists, errors.OutcomeUnknown) as fault:
            try:
                found = await self._client.get(_POD_AS_DICT, metadata["name"], metadata["namespace"])
            except errors.NotFound:
                raise fault from None
            if not _matches_manifest(found, manifest):
                text = messages.foreign_object("pod", metadata["namespace"], metadata["name"])
                raise ForeignPodError(text) from None
            return None

    async def read_stored(self, pod: Pod) -> dict[str, Any] | None:
        """Read all fields of the pod with the same UID; None if it is gone."""
        found = await self._client.find(_POD_AS_DICT, pod.metadata.name, pod.metadata.namespace)
        return found if found is not None and found["metadata"]["uid"] == pod.metadata.uid else None

    async def remove_gate(self, pod: Pod) -> bool:
        """Remove the gate if the pod has this UID. The call is idempotent.

        Return false if the pod has changed, so that the caller must read it again.
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
        return await self._patch(pod, operations)

    async def request_deletion(self, pod: Pod, *, grace: int | None = None) -> None:
        """Request the deletion of the pod. Dayfly's finalizer keeps its status until `release`."""
        if pod.metadata.deletion_timestamp:
            return
        try:
            await self._client.delete(
                PODS, pod.metadata.name, pod.metadata.namespace, uid=pod.metadata.uid, grace=grace
            )
        except (errors.NotFound, errors.Conflict):
            return

    async def recall(self, pod: Pod, image: str, now: int) -> bool:
        """Add an ephemeral container whose runner prevents the start of the step; `now` is unix milliseconds.

        A second recall changes nothing. Return false if the recall is impossible: `image` is the step's own image, or
        the API server refuses the change.
        """
        stored = await self.read_stored(pod)
        if stored is None:
            return True
        added = stored["spec"].get("ephemeralContainers") or []
        if any(each["name"].startswith(names.RECALL) for each in added):
            return True
        if any(each["name"] == MAIN and each["image"] == image for each in stored["spec"]["containers"]):
            return False
        meta = {"uid": pod.metadata.uid, "resourceVersion": stored["metadata"]["resourceVersion"]}
        patch = {"metadata": meta, "spec": {"ephemeralContainers": [*added, render.recall_container(image, now)]}}
        try:
            # `on_change` is not called: the watch must bring the next turn, whose `now` is later than the recall.
            await self._client.patch(
                PODS, patch, pod.metadata.name, pod.metadata.namespace, subresource="ephemeralcontainers"
            )
        except (errors.NotFound, errors.Conflict):
            return True  # deleted or changed: the next turn reads it again
        except errors.Refused:
            return False
        return True

    async def release(self, pod: Pod) -> bool:
        """Delete the pod and remove the finalizer. Return false if the pod has changed.

        The caller must have recorded the result.
        """
        await self.request_deletion(pod)
        finalizers = list(pod.metadata.finalizers or ())
        if names.FINALIZER not in finalizers:
            return True
        at = finalizers.index(names.FINALIZER)
        operations = [
            {"op": "test", "path": "/metadata/uid", "value": pod.metadata.uid},
            {"op": "test", "path": f"/metadata/finalizers/{at}", "value": names.FINALIZER},
            {"op": "remove", "path": f"/metadata/finalizers/{at}"},
        ]
        return await self._patch(pod, operations)

    async def _patch(self, pod: Pod, operations: list[dict[str, Any]]) -> bool:
        try:
            name, namespace = pod.metadata.name, pod.metadata.namespace
            self._on_change(await self._client.patch(PODS, operations, name, namespace, style=Style.JSON))
        except (errors.NotFound, errors.Conflict, errors.Invalid):
            # Deleted, replaced, or changed already: the next turn reads it again.
            return False
        return True

    async def read_outputs(self, pod: Pod, digest: str) -> dict[str, bytes] | None:
        """Read the outputs from the receipt in the log; None if the log has no complete receipt with that digest.

        Raises:
            errors.ApiError: The log cannot be read now, and may contain the receipt.
        """
        splitter, log = LogSplitter(), self._client.log(pod.metadata.name, pod.metadata.namespace, container=MAIN)
        try:
            async with asyncio.timeout(LOG_TIMEOUT_S), contextlib.aclosing(log) as chunks:
                async for chunk in chunks:
                    splitter.feed(chunk)
        except TimeoutError:
            raise errors.ServerError(
                f"log of pod {pod.metadata.name}", f"incomplete after {LOG_TIMEOUT_S:g} s"
            ) from None
        except errors.Refused as no:
            if isinstance(no, (errors.Unauthorized, errors.Forbidden)):
                raise  # the operator may be granted the right later
            return None
        return splitter.contents() if splitter.digest == digest else None


def _matches_manifest(found: dict[str, Any], manifest: dict[str, Any]) -> bool:
    """Return whether the pod has the owner, nonce and finalizer of the manifest. Only Dayfly can know the nonce."""
    meta, wanted = found["metadata"], manifest["metadata"]
    owners = [owner.get("uid") for owner in meta.get("ownerReferences") or ()]
    nonce = (meta.get("annotations") or {}).get(names.NONCE_ANNOTATION)
    return (
        wanted["ownerReferences"][0]["uid"] in owners
        and nonce == wanted["annotations"][names.NONCE_ANNOTATION]
        and names.FINALIZER in (meta.get("finalizers") or ())
    )
