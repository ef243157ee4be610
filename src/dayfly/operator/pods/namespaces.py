"""Where steps may run: the operator's own namespace for them, and those that an administrator has labelled."""

import base64
import contextlib
import hashlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from dayfly.execute.pod import names
from dayfly.execute.pod.policy import Level
from dayfly.kube import errors
from dayfly.kube.client import Client
from dayfly.kube.objects import NAMESPACES, anything
from dayfly.plan.reasons import Reason

GRANT_LABEL = f"{names.GROUP}/runners"
# On a namespace with that label: whose sandboxes' steps it takes beside those of its own.
HOMES_ANNOTATION = f"{names.GROUP}/runners-from"
ENFORCE_LABEL = "pod-security.kubernetes.io/enforce"
_MACHINES = {62: "amd64", 183: "arm64"}  # e_machine of an ELF file, as Kubernetes says it
CONFIG_MAPS = anything("v1", "ConfigMap", "configmaps")
# A grant that is taken back stops new steps after at most so long.
BELIEVED_MS = 30_000


class NotGrantedError(Exception):
    """Nobody has granted it; `reason` is one word, the text says who can change that."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class RunnerConfigMap(NamedTuple):
    """The runner program as a ConfigMap; its name tells its content, so that a new release makes a new one."""

    name: str
    program: bytes = b""

    @classmethod
    def of(cls, program: bytes) -> "RunnerConfigMap":
        """The ConfigMap of these bytes."""
        return cls(f"dayfly-runner-{hashlib.sha256(program).hexdigest()[:16]}", program)

    @property
    def architecture(self) -> str:
        """Of the nodes that can start it, as their label says it."""
        return _MACHINES.get(int.from_bytes(self.program[18:20], "little"), "amd64")

    def manifest(self, namespace: str) -> dict[str, Any]:
        """Immutable: what a running pod has mounted is what was sealed into it."""
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": self.name, "namespace": namespace},
            "immutable": True,
            "binaryData": {"runner": base64.b64encode(self.program).decode()},
        }


def listed(annotations: Mapping[str, str] | None, key: str) -> set[str]:
    """The names in an annotation that joins them by commas."""
    return {name for each in (annotations or {}).get(key, "").split(",") if (name := each.strip())}


class Granted(NamedTuple):
    """What an administrator grants in one namespace where steps run."""

    level: Level
    keys: frozenset[str]
    """Labels and annotations that a plugin's pods may have beside the usual ones."""
    homes: frozenset[str]
    """The namespaces whose sandboxes' steps it takes beside its own; `*` for all of them."""


class Namespaces:
    """What is known of namespaces, for half a minute each."""

    def __init__(self, client: Client, runner: RunnerConfigMap, now: Callable[[], int]) -> None:
        self._client = client
        self._runner = runner
        self._now = now
        self._known: dict[str, tuple[int, Granted]] = {}

    async def of(self, namespace: str, home: str) -> Granted:
        """How much a step of a sandbox in `home` may in that namespace; the runner is there when this returns.

        Raises:
            NotGrantedError: no such step may run there.
            errors.ApiError: the server cannot be asked, or refuses the runner.
        """
        known = self._known.get(namespace)
        if known is None or self._now() >= known[0]:
            asked = await self._ask(namespace)
            await self._equip(namespace)
            known = self._known[namespace] = self._now() + BELIEVED_MS, asked
        _, granted = known
        if namespace != home and granted.homes.isdisjoint({home, "*"}):
            raise NotGrantedError(
                Reason.NAMESPACE_NOT_GRANTED,
                f"namespace {namespace} does not take steps of sandboxes in {home}: an administrator can add {home} to "
                f"its annotation {HOMES_ANNOTATION} (separate several names with commas)",
            )
        return granted

    async def _ask(self, namespace: str) -> Granted:
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
        homes = {"*"} if namespace == names.RUNNERS else listed(annotations, HOMES_ANNOTATION)
        level: Level = "restricted" if labels.get(ENFORCE_LABEL) == "restricted" else "baseline"
        return Granted(level, frozenset(listed(annotations, names.KEYS_ANNOTATION)), frozenset(homes))

    async def _equip(self, namespace: str) -> None:
        """See that the runner is there: as often as the grant is asked for, since both go with a namespace."""
        if not self._runner.program:
            return
        wanted = self._runner.manifest(namespace)
        try:
            found = await self._client.get(CONFIG_MAPS, self._runner.name, namespace)
        except errors.NotFound:
            with contextlib.suppress(
                errors.AlreadyExists
            ):  # a peer was quicker, by policy `dayfly-program` nobody else
                await self._client.create(CONFIG_MAPS, wanted, namespace)
            return
        if any(found.get(field) != wanted[field] for field in ("immutable", "binaryData")):
            raise NotGrantedError(
                Reason.NAMESPACE_NOT_GRANTED,
                f"ConfigMap {self._runner.name} in namespace {namespace} is not the operator's own program, and would "
                "run with the steps' Secrets: find out who has made it, and delete it",
            )
