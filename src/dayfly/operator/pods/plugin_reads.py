"""Which Secrets, ConfigMaps and claims a plugin's steps may read: those that name it, and no outputs of other steps."""

from collections.abc import Callable, Iterable
from typing import Any

from dayfly.execute.pod import names
from dayfly.execute.pod.policy import Reference
from dayfly.kube import errors
from dayfly.kube.client import Client
from dayfly.kube.objects import AnnotatedMeta, Resource, Slim
from dayfly.operator.pods.namespaces import BELIEVED_MS, NotGrantedError, listed
from dayfly.plan.reasons import Reason
from dayfly.spec.lifecycle import Origin

# On a Secret, ConfigMap or claim: the plugins that may read it, as `publisher:name`, joined by commas.
PLUGINS_ANNOTATION = f"{names.GROUP}/plugins"


class _Head(Slim, frozen=True):
    """Who may read an object, and what kind of Secret it is. Of its values nothing is kept."""

    metadata: AnnotatedMeta
    type: str = ""


_RESOURCES: dict[str, Resource[Any]] = {
    "Secret": Resource("", "v1", "secrets", "Secret", _Head),
    "ConfigMap": Resource("", "v1", "configmaps", "ConfigMap", _Head),
    "PersistentVolumeClaim": Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", _Head),
}


class PluginReads:
    """What is known of objects that were granted, for half a minute each."""

    def __init__(self, client: Client, now: Callable[[], int]) -> None:
        self._client = client
        self._now = now
        self._known: dict[tuple[str, str, str], tuple[int, set[str]]] = {}

    async def check(self, origin: Origin, namespace: str, references: Iterable[Reference]) -> None:
        """Return if each of these objects of a namespace names the plugin.

        Raises:
            NotGrantedError: one does not.
            errors.ApiError: the server cannot be asked.
        """
        for kind, name in sorted({(each.kind, each.name) for each in references}):
            if origin.name not in await self._readers(namespace, kind, name):
                raise NotGrantedError(
                    Reason.PLUGIN_NOT_GRANTED,
                    f"{kind} {namespace}/{name} does not name the plugin {origin.name}: whoever owns it can annotate "
                    f"it {PLUGINS_ANNOTATION}={origin.name} (separate several names with commas)",
                )

    async def _readers(self, namespace: str, kind: str, name: str) -> set[str]:
        key, now = (namespace, kind, name), self._now()
        until, readers = self._known.get(key, (0, set[str]()))
        if now < until:
            return readers
        # None of those that are not believed any more: many are never asked for again.
        self._known = {each: known for each, known in self._known.items() if now < known[0]}
        if readers := await self._ask(namespace, kind, name):
            self._known[key] = self._now() + BELIEVED_MS, readers
        return readers

    async def _ask(self, namespace: str, kind: str, name: str) -> set[str]:
        try:
            found: _Head = await self._client.get(_RESOURCES[kind], name, namespace)
        except errors.NotFound:
            message = f"{kind} {namespace}/{name} does not exist: create it with the annotation {PLUGINS_ANNOTATION}"
            raise NotGrantedError(Reason.PLUGIN_NOT_GRANTED, message) from None
        owners = found.metadata.owner_references or []
        if found.type in (names.OUTPUTS_TYPE, names.STATE_TYPE) or any(owner.kind == "Run" for owner in owners):
            message = f"{kind} {namespace}/{name} holds the outputs of a step: only inputs of steps may read them"
            raise NotGrantedError(Reason.PLUGIN_NOT_GRANTED, message)
        return listed(found.metadata.annotations, PLUGINS_ANNOTATION)
