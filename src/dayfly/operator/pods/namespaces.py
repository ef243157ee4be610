"""Namespaces in which steps may run: the default namespace, and namespaces with an administrator's label."""

import base64
import contextlib
import hashlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from dayfly.execute.pod import names
from dayfly.execute.pod.policy import Level
from dayfly.kube import errors
from dayfly.kube.client import KubeClient
from dayfly.kube.objects import NAMESPACES, untyped_resource
from dayfly.plan.reasons import Reason

GRANT_LABEL = f"{names.GROUP}/runners"
# On a namespace with that label: the other namespaces whose sandboxes may run their steps there.
SANDBOX_NAMESPACES_ANNOTATION = f"{names.GROUP}/runners-from"
ENFORCE_LABEL = "pod-security.kubernetes.io/enforce"
_MACHINES = {62: "amd64", 183: "arm64"}  # e_machine of an ELF file, by Kubernetes' names
CONFIG_MAPS = untyped_resource("v1", "ConfigMap", "configmaps")
# Maximum time until a revoked grant stops new steps.
GRANT_CACHE_MS = 30_000


class NotGrantedError(Exception):
    """A missing grant of an administrator. `reason` is for the status; the message names who can grant it."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class RunnerConfigMap(NamedTuple):
    """The runner program as a ConfigMap. Its name contains a digest, so a new release creates another one."""

    name: str
    program: bytes = b""

    @classmethod
    def from_program(cls, program: bytes) -> "RunnerConfigMap":
        """Return the ConfigMap of a program."""
        return cls(f"dayfly-runner-{hashlib.sha256(program).hexdigest()[:16]}", program)

    @property
    def architecture(self) -> str:
        """Return the value of the label `kubernetes.io/arch` of nodes that can run the program."""
        return _MACHINES.get(int.from_bytes(self.program[18:20], "little"), "amd64")

    def manifest(self, namespace: str) -> dict[str, Any]:
        """Return the manifest. It is immutable, so that running pods keep the program with which they were created."""
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": self.name, "namespace": namespace},
            "immutable": True,
            "binaryData": {"runner": base64.b64encode(self.program).decode()},
        }


def comma_separated(annotations: Mapping[str, str] | None, key: str) -> set[str]:
    """Return the names in an annotation with a comma-separated list."""
    return {name for each in (annotations or {}).get(key, "").split(",") if (name := each.strip())}


class NamespaceGrant(NamedTuple):
    """Grants of an administrator for the steps in one namespace."""

    level: Level
    keys: frozenset[str]
    """Additional keys of labels and annotations that a plugin's pods may have."""
    sandbox_namespaces: frozenset[str]
    """Other namespaces whose sandboxes may run steps there; `*` for all."""


class Namespaces:
    """Cached grants of namespaces."""

    def __init__(self, client: KubeClient, runner: RunnerConfigMap, now: Callable[[], int]) -> None:
        self._client = client
        self._runner = runner
        self._now = now
        self._known: dict[str, tuple[int, NamespaceGrant]] = {}

    async def grant_for(self, namespace: str, home: str) -> NamespaceGrant:
        """Return the grant for a step of a sandbox in `home`, and ensure that the namespace has the runner's ConfigMap.

        Raises:
            NotGrantedError: such a step may not run there.
            errors.ApiError: the API server failed, or refuses the ConfigMap.
        """
        known = self._known.get(namespace)
        if known is None or self._now() >= known[0]:
            grant = await self._read_grant(namespace)
            await self._ensure_runner(namespace)
            known = self._known[namespace] = self._now() + GRANT_CACHE_MS, grant
        _, granted = known
        if namespace != home and granted.sandbox_namespaces.isdisjoint({home, "*"}):
            raise NotGrantedError(
                Reason.NAMESPACE_NOT_GRANTED,
                f"namespace {namespace} does not accept steps of "
                f"{f'sandboxes in {home}' if home else 'objects without a namespace'}: an administrator can add "
                f"{home or '*'} to its annotation {SANDBOX_NAMESPACES_ANNOTATION} (separate several names with commas)",
            )
        return granted

    async def _read_grant(self, namespace: str) -> NamespaceGrant:
        try:
            seen = await self._client.get(NAMESPACES, namespace)
        except errors.NotFound:
            ours = namespace == names.RUNNERS
            advice = "apply the install manifest again" if ours else "create it, or change the plugin"
            raise NotGrantedError(Reason.NAMESPACE_MISSING, f"namespace {namespace} does not exist: {advice}") from None
        labels, annotations = seen.metadata.labels or {}, seen.metadata.annotations
        if namespace != names.RUNNERS and labels.get(GRANT_LABEL) != "true":
            raise NotGrantedError(
                Reason.NAMESPACE_NOT_GRANTED,
                f"steps may not run in namespace {namespace}: an administrator can label it {GRANT_LABEL}=true, "
                f"or the plugin can leave spec.runner.namespace out to run in {names.RUNNERS}",
            )
        sandbox_namespaces = (
            {"*"} if namespace == names.RUNNERS else comma_separated(annotations, SANDBOX_NAMESPACES_ANNOTATION)
        )
        level: Level = "restricted" if labels.get(ENFORCE_LABEL) == "restricted" else "baseline"
        return NamespaceGrant(
            level, frozenset(comma_separated(annotations, names.KEYS_ANNOTATION)), frozenset(sandbox_namespaces)
        )

    async def _ensure_runner(self, namespace: str) -> None:
        """Ensure that the namespace has the runner. This is repeated with each read of the grant."""
        if not self._runner.program:
            return
        wanted = self._runner.manifest(namespace)
        try:
            found = await self._client.get(CONFIG_MAPS, self._runner.name, namespace)
        except errors.NotFound:
            with contextlib.suppress(
                errors.AlreadyExists
            ):  # created by a peer: the policy `dayfly-program` allows no others
                await self._client.create(CONFIG_MAPS, wanted, namespace)
            return
        if any(found.get(field) != wanted[field] for field in ("immutable", "binaryData")):
            raise NotGrantedError(
                Reason.NAMESPACE_NOT_GRANTED,
                f"ConfigMap {self._runner.name} in namespace {namespace} is not the operator's program, and would "
                "run with the steps' Secrets: find out who created it, and delete it",
            )
