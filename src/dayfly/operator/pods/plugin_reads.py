"""Access of plugins to Secrets, ConfigMaps and PersistentVolumeClaims: objects must name the plugin in an annotation.

Secrets with the outputs of steps are never readable this way.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import msgspec

from dayfly.execute.pod import names
from dayfly.execute.pod.policy import Reference
from dayfly.kube import errors
from dayfly.kube.client import KubeClient
from dayfly.kube.objects import AnnotatedMeta, ApiResource, KubeStruct
from dayfly.operator.pods.namespaces import GRANT_CACHE_MS, NotGrantedError, comma_separated
from dayfly.plan.reasons import Reason
from dayfly.spec.lifecycle import StepOrigin

# On a Secret, ConfigMap or PersistentVolumeClaim: the plugins that may read it, as `publisher:name`, comma-separated.
PLUGINS_ANNOTATION = f"{names.GROUP}/plugins"


class _ObjectHead(KubeStruct, frozen=True):
    """Metadata of an object, the type of a Secret, and its keys. Values are not kept."""

    metadata: AnnotatedMeta
    type: str = ""
    data: dict[str, msgspec.Raw] | None = None
    binary_data: dict[str, msgspec.Raw] | None = None


class _ObjectGrant(NamedTuple):
    """The plugins that an object names, the object's keys, and its version."""

    readers: set[str]
    keys: frozenset[str] = frozenset()
    version: str = ""


_RESOURCES: dict[str, ApiResource[Any]] = {
    "Secret": ApiResource("", "v1", "secrets", "Secret", _ObjectHead),
    "ConfigMap": ApiResource("", "v1", "configmaps", "ConfigMap", _ObjectHead),
    "PersistentVolumeClaim": ApiResource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", _ObjectHead),
}


class PluginReads:
    """Cached grants of objects."""

    def __init__(self, client: KubeClient, now: Callable[[], int]) -> None:
        self._client = client
        self._now = now
        self._known: dict[tuple[str, str, str], tuple[int, _ObjectGrant]] = {}

    async def check(self, origin: StepOrigin, namespace: str, references: Iterable[Reference]) -> None:
        """Check that each object of a namespace names the plugin and has the keys that the pod reads.

        Raises:
            NotGrantedError: an object does not.
            errors.ApiError: the API server failed.
        """
        for kind, name, path, keys in sorted(references):
            granted = await self._granted(namespace, kind, name, keys)
            if missing := [key for key in keys if key not in granted.keys]:
                message = f"{kind} {namespace}/{name} has no key {missing[0]!r}, which {path} of the step's pod reads"
                raise NotGrantedError(Reason.PLUGIN_NOT_GRANTED, f"{message}: add the key, or correct the plugin")
            if origin.name not in granted.readers:
                raise NotGrantedError(
                    Reason.PLUGIN_NOT_GRANTED,
                    f"{kind} {namespace}/{name} does not name the plugin {origin.name}: its owner can annotate "
                    f"it {PLUGINS_ANNOTATION}={origin.name} (separate several names with commas)",
                )

    async def versions(
        self, origin: StepOrigin, namespace: str, references: Iterable[Reference], *, newest: bool
    ) -> dict[tuple[str, str], str] | None:
        """Return the versions of objects, by kind and name; None if the plugin may not read one of them.

        `newest` does not use cached versions.

        Raises:
            errors.ApiError: the API server failed.
        """
        found = {}
        for kind, name, _, keys in sorted(references):
            if newest:
                self._known.pop((namespace, kind, name), None)
            try:
                granted = await self._granted(namespace, kind, name, keys)
            except NotGrantedError:
                return None
            if origin.name not in granted.readers:
                return None
            found[kind, name] = granted.version
        return found

    async def _granted(self, namespace: str, kind: str, name: str, keys: tuple[str, ...]) -> _ObjectGrant:
        key, now = (namespace, kind, name), self._now()
        until, granted = self._known.get(key, (0, _ObjectGrant(set())))
        if now < until and granted.keys.issuperset(keys):
            return granted
        # Drop expired entries, since many are never read again.
        self._known = {each: known for each, known in self._known.items() if now < known[0]}
        if (granted := await self._read_grant(namespace, kind, name)).readers:
            self._known[key] = self._now() + GRANT_CACHE_MS, granted
        return granted

    async def _read_grant(self, namespace: str, kind: str, name: str) -> _ObjectGrant:
        try:
            found: _ObjectHead = await self._client.get(_RESOURCES[kind], name, namespace)
        except errors.NotFound:
            message = f"{kind} {namespace}/{name} does not exist: create it with the annotation {PLUGINS_ANNOTATION}"
            raise NotGrantedError(Reason.PLUGIN_NOT_GRANTED, message) from None
        owners = found.metadata.owner_references or []
        if found.type in (names.OUTPUTS_TYPE, names.STATE_TYPE) or any(owner.kind == "Run" for owner in owners):
            message = f"{kind} {namespace}/{name} holds the outputs of a step: only inputs of steps may read them"
            raise NotGrantedError(Reason.PLUGIN_NOT_GRANTED, message)
        keys = frozenset({*(found.data or ()), *(found.binary_data or ())})
        version = f"{found.metadata.uid}/{found.metadata.resource_version}"
        return _ObjectGrant(comma_separated(found.metadata.annotations, PLUGINS_ANNOTATION), keys, version)
