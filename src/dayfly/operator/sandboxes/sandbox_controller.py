"""A Sandbox that was applied with kubectl, or by GitOps, and the plugins it names become documents and a Run.

Names are derived from the Sandbox's UID, and what is there already is taken as it is: the documents of a run are sealed
when they are first written, whatever a later compiler would make of the same wish.
"""

import contextlib
from collections.abc import Callable, Mapping

import msgspec

from dayfly import compile as compiler
from dayfly.compile import Compiled
from dayfly.execute.pod import names, pod_precheck
from dayfly.kube.cache import Change
from dayfly.kube.objects import Key
from dayfly.operator.cluster import births
from dayfly.operator.cluster.caches import ClusterWatches, finalized
from dayfly.operator.cluster.objects import (
    SANDBOXES,
    TARGET_FINALIZER,
    PluginObject,
    RunObject,
    SandboxObject,
    check_depth,
    is_served,
)
from dayfly.operator.sandboxes.in_use_labels import InUse
from dayfly.operator.status.sandbox_status import Heeded, SandboxNotReadyError
from dayfly.operator.targets.sandbox import counts_updates
from dayfly.plan import messages
from dayfly.plan.reasons import Reason
from dayfly.spec import documents
from dayfly.spec.errors import SpecError
from dayfly.spec.identity import routing_key
from dayfly.spec.kinds import RunSpec
from dayfly.spec.plugin import Plugin
from dayfly.spec.sandbox import Sandbox
from dayfly.spec.scalars import semver
from dayfly.spec.unsupported_fields import ToLocal

# Who has published the plugins that are objects of this cluster, as grants name it.
CLUSTER = "cluster"
REFUSALS = frozenset({Reason.REFUSED, Reason.PLUGIN_MISSING})
# So many versions of a plugin are named where the one that is wished for is not among them.
MOST_NAMED = 8

Routed = Mapping[str, tuple[str, ...]] | None


class SandboxController:
    """Sees to it that each Sandbox has its run, and the run the Sandbox's newest forks."""

    def __init__(self, cluster: ClusterWatches, in_use: InUse, doubt: Callable[[SandboxObject, str], None]) -> None:
        """`doubt` tells people what a new sandbox asks for in vain."""
        self._cluster = cluster
        self._doubt = doubt
        self._in_use = in_use
        # By UID, as long as the Sandbox is there: the generation that its run has taken up, that run's UID, and the
        # keys that lead to its forks beside its own.
        self._done: dict[str, tuple[int, str, Routed]] = {}
        # Likewise: a generation that no run can take up.
        self._refused: dict[str, Heeded] = {}
        cluster.sandboxes.listen(self._heard)
        cluster.plugins.listen(self._published_anew)
        cluster.gateway.listen(self._routed_anew)
        cluster.istio.listen(self._routed_anew)
        self._parsed: dict[tuple[str, int], Plugin | SpecError] = {}  # by UID and generation

    def _heard(self, change: Change[SandboxObject]) -> None:
        if (gone := change.gone) is not None:
            self._done.pop(gone.metadata.uid, None)
            self._refused.pop(gone.metadata.uid, None)

    def _published_anew(self, _change: Change[PluginObject]) -> None:
        """Perhaps what a refused wish lacked; sandboxes without a run are seen to by the cluster."""
        for sandbox in self._cluster.sandboxes if self._refused else ():
            if sandbox.metadata.uid in self._refused:
                self._cluster.wishes.add(Key.of(sandbox))

    def _routed_anew(self) -> None:
        """Requests can be led to forks by their key now, or no longer."""
        for sandbox in self._cluster.sandboxes:
            if sandbox.spec.get("forks"):
                self._cluster.wishes.add(Key.of(sandbox))

    def _routed(self, seen: SandboxObject) -> Routed:
        """What leads to its forks beside its own key; None where nothing leads to any fork."""
        return self._cluster.keys_of(seen) if self._cluster.routed and seen.spec.get("forks") else None

    def heeded(self, seen: SandboxObject) -> Heeded:
        """Of which wish its run speaks: after a restart of the one it spoke of before, until this one is tended."""
        uid, spoken = seen.metadata.uid, seen.status
        if uid in self._refused:
            return self._refused[uid]
        known = self._done[uid][0] if uid in self._done else spoken.observed_generation if spoken else 0
        return Heeded(known or seen.metadata.generation)

    async def reconcile(self, key: Key) -> SandboxNotReadyError | None:
        """Take one Sandbox a step further; what is returned is why it has no run."""
        seen = self._cluster.sandboxes.get(key.name, key.namespace)
        if seen is None:
            return None
        run = self._cluster.ledger.get(names.run_name(seen.metadata.name, seen.metadata.uid))
        if run is None and finalized(seen.metadata, TARGET_FINALIZER):
            lost = await births.recover(self._cluster, SANDBOXES, seen, "sandbox")
            return SandboxNotReadyError(Reason.LEDGER_LOST, lost) if lost else None
        meta = seen.metadata
        if meta.deletion_timestamp or is_served(meta):
            return None  # a server's: it comes with its documents
        await self._cluster.looked()
        routed = self._routed(seen)
        is_done = run is not None and self._done.get(meta.uid) == (meta.generation, run.metadata.uid, routed)
        if is_done or (run is not None and not await self._note_update(seen, run)):
            return None  # only its status has changed, or its labels; or the moment of its change is written first
        try:
            compiled = self._compile(seen, routed, new=run is None)
        except (SpecError, SandboxNotReadyError) as error:
            why = error if isinstance(error, SandboxNotReadyError) else SandboxNotReadyError(Reason.REFUSED, str(error))
            if run is None:
                return why
            self._refuse(seen, run, why)
            return None
        if run is None:
            await self._seal(seen, compiled, routed)
            return None
        if run.ledger.closed is None and run.spec.forks != compiled.forks:
            revised = msgspec.structs.replace(run.spec, forks=compiled.forks)
            if not await self._cluster.ledger.replace(run, msgspec.structs.replace(run, spec=revised)):
                self._cluster.wishes.add(key, after=0.1)
                return None
        self._take_up(seen, run, routed)
        return None

    async def _note_update(self, seen: SandboxObject, run: RunObject) -> bool:
        """Write down when its wish was changed, if anything counts from there; true once that is there."""
        if run.ledger.closed is not None or self._updated(run.spec, seen) is run.spec:
            return True
        noting = msgspec.structs.replace(run, spec=self._updated(run.spec, seen))
        if await self._cluster.ledger.replace(run, noting):
            self._cluster.queue.add(run.metadata.name)
        self._cluster.wishes.add(Key.of(seen), after=0.1)
        return False

    def _updated(self, spec: RunSpec, seen: SandboxObject) -> RunSpec:
        """With the moment of its change, if anything counts from there; the first wish's is that of its birth."""
        generation = seen.metadata.generation
        if generation == (spec.generation or 1) or not counts_updates(seen.spec):
            return spec
        return msgspec.structs.replace(spec, generation=generation, updated_at=self._cluster.now())

    def _take_up(self, seen: SandboxObject, run: RunObject, routed: Routed) -> None:
        """The run goes by that wish now."""
        meta, before = seen.metadata, self.heeded(seen)
        if not self._is_there(seen):
            return
        self._refused.pop(meta.uid, None)
        self._done[meta.uid] = meta.generation, run.metadata.uid, routed
        if before != Heeded(meta.generation):
            self._cluster.queue.add(run.metadata.name)  # it is said

    def _refuse(self, seen: SandboxObject, run: RunObject, why: SandboxNotReadyError) -> None:
        """The run goes on by the wish before that one. What was taken up once is not refused by a later compiler."""
        meta, spoken = seen.metadata, seen.status
        newest = spoken if spoken is not None and spoken.observed_generation >= meta.generation else None
        if run.ledger.closed is not None or not self._is_there(seen):
            return
        if newest is not None and newest.reason not in REFUSALS:
            return
        said = self._refused.get(meta.uid)
        if said is None or (said.generation, str(said.refusal)) != (meta.generation, str(why)):
            self._refused[meta.uid] = Heeded(meta.generation, why)
            self._cluster.queue.add(run.metadata.name)

    def _is_there(self, seen: SandboxObject) -> bool:
        """Whether that very Sandbox is: of one that has gone while we were at it nobody would have us forget again."""
        found = self._cluster.sandboxes.get(seen.metadata.name, seen.metadata.namespace)
        return found is not None and found.metadata.uid == seen.metadata.uid

    def _compile(self, seen: SandboxObject, routed: Routed, *, new: bool) -> Compiled:
        meta = seen.metadata
        check_depth(seen.spec)
        sandbox = documents.from_wire({"name": meta.name, "spec": seen.spec}, "Sandbox", name=meta.name)
        assert isinstance(sandbox, Sandbox), "asked for by its kind"
        compiled = compiler.compile(
            sandbox,
            self._plugins(sandbox),
            uid=meta.uid,
            routing_key=routing_key(meta.uid),
            namespace=meta.namespace,
            publisher=CLUSTER,
            routed=routed,
            local=ToLocal.CLUSTER,
        )
        if new:
            _check_pods(seen, compiled)
        return compiled

    def _plugins(self, sandbox: Sandbox) -> dict[tuple[str, str], Plugin]:
        """All published versions of the plugins it names: the compiler takes the highest where none is named.

        A plugin that cannot be read stands in the way of those alone who name it.
        """
        wanted = compiler.missing(sandbox)
        published = self._published({name for name, _ in wanted})
        for (name, version), place in wanted.items():
            versions = sorted((v for n, v in published if n == name), key=semver.order)
            if not versions or (version and version not in versions):
                asked = f"{name}@{version}" if version else name
                there = _there(versions)
                raise SandboxNotReadyError(
                    Reason.PLUGIN_MISSING, f"resource plugin {asked} is not in this cluster ({there})"
                )
            fault = published[name, version or versions[-1]]
            if isinstance(fault, SpecError):
                problem = f"the plugin {semver.join_name(name, version or versions[-1])} is wrong: {fault}"
                raise SpecError(problem, ("spec", "resources", place, "plugin"))
        return {key: found for key, found in published.items() if isinstance(found, Plugin)}

    def _published(self, wanted: set[str]) -> dict[tuple[str, str], Plugin | SpecError]:
        """The versions of these plugins, each as it can be read, or what is wrong with it."""
        seen = {(each.metadata.uid, each.metadata.generation): each for each in self._cluster.plugins}
        self._parsed = {key: found for key, found in self._parsed.items() if key in seen}
        published: dict[tuple[str, str], Plugin | SpecError] = {}
        for key, each in seen.items():
            if str(each.spec.get("name", "")).partition("@")[0] not in wanted:
                continue
            if key not in self._parsed:
                self._parsed[key] = _parsed(each)
            with contextlib.suppress(SpecError):  # by a name that is wrong nobody can ask for it
                published[semver.split_name(str(each.spec["name"]))] = self._parsed[key]
        return published

    async def _seal(self, seen: SandboxObject, compiled: Compiled, routed: Routed) -> None:
        meta = seen.metadata
        now = await births.find_without_run(self._cluster, SANDBOXES, seen)
        if now is None:
            # The cache is behind. A run that is born now would be a second one.
            self._cluster.wishes.add(Key.of(seen), after=1.0)
            return
        await self._in_use.mark(now)
        spec = self._updated(RunSpec(forks=compiled.forks), now)
        made = await births.seal(self._cluster, meta, compiled.documents, spec)
        if made.spec.forks == compiled.forks and self._is_there(seen):
            self._done[meta.uid] = meta.generation, made.metadata.uid, routed
        if compiled.warnings:
            self._doubt(seen, "; ".join(compiled.warnings))
        self._cluster.queue.add(made.metadata.name)


def _there(versions: list[str]) -> str:
    """Which there are, the lowest first; of many the highest alone, for a status has its limits."""
    older = len(versions) - MOST_NAMED
    named = f"there are {', '.join(versions[-MOST_NAMED:])}" if versions else "there is no version of it"
    return f"{named} and {older} older one{'s' * (older > 1)}" if older > 0 else named


def _parsed(found: PluginObject) -> Plugin | SpecError:
    try:
        return found.parsed()
    except SpecError as fault:
        return fault


def _check_pods(seen: SandboxObject, compiled: Compiled) -> None:
    """Refuse a sandbox with a step of which no pod may ever be made, rather than have it wait for one."""
    wishes = seen.spec.get("resources") or []
    for document in compiled.documents:
        if problem := messages.secrets_not_available(document.secrets()):
            place = next(n for n, each in enumerate(wishes) if each["name"] == document.resource)
            raise SpecError(problem, ("spec", "resources", place))
        for problem in pod_precheck.objections(document):
            if not document.resource:
                raise SpecError(problem, ("spec", "runner"))
            place, wish = next((n, each) for n, each in enumerate(wishes) if each["name"] == document.resource)
            whose = f"the plugin {wish['plugin']}" if wish.get("plugin") else "the plugin"
            raise SpecError(f"{whose} is wrong: {problem}", ("spec", "resources", place))
