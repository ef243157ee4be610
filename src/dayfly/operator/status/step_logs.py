"""What steps printed, for people: StepLogs objects beside the Sandbox, in its own namespace.

The end of each log is kept with the attempt's outputs, in a Secret among the runners, before anything is recorded. But
there one right would open the outputs of every sandbox in the cluster, and so would the right to the logs of the
runners' pods, for large outputs travel in them. Hence a copy that whoever may view the Sandbox's namespace may read, as
they may read the logs of its pods. Steps that end while the run is busy are written together, so a chain of short ones
costs one write. What a crash leaves unwritten the next operator takes from the Secrets.
"""

import base64
import itertools
import logging
from typing import Any, Final

import msgspec

from dayfly.execute.pod import names
from dayfly.execute.pod.logs import TAIL_LIMIT, Printed
from dayfly.execute.turn import Scene
from dayfly.kube import errors
from dayfly.kube.objects import SECRETS
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.objects import STEP_LOGS, RunObject, StepLogsObject, owned, owner
from dayfly.operator.outputs.attempt_secrets import LOG_KEY, TIMES_KEY, times_of
from dayfly.operator.status.status_throttle import GOING_ON_MS, due
from dayfly.spec.kinds import SandboxRef, StepLog, StepLogsSpec
from dayfly.spec.log_times import flatten
from dayfly.spec.report import RunReport
from dayfly.spec.run import Phase, State

log = logging.getLogger(__name__)

# What nobody has written by then was forgotten by an operator that crashed; what is older than that stays forgotten.
ABANDONED_MS, RECENT_MS = 20_000, 15 * 60_000
# In one object: so many, and no more bytes of JSON. A server takes a megabyte and a half, and what is printed may be
# six times as long in JSON: colours, markup and other characters that stand there by their numbers.
MOST_IN_ONE, MOST_BYTES = 8, 1 << 20
# Of a step that is tried without end, so many attempts' logs are kept.
MOST_ATTEMPTS = 10

_Attempt = tuple[str, int]
# One for all: an empty set of their own costs 216 bytes, and there are as many as runs.
_NONE: Final[frozenset[_Attempt]] = frozenset()


class LogMemory:
    """Of one run: logs that are yet to be written, and attempts whose logs need no more looking after."""

    __slots__ = ("dealt_with", "waiting")

    def __init__(self) -> None:
        self.waiting: dict[_Attempt, StepLog] = {}
        self.dealt_with: frozenset[_Attempt] = _NONE

    def clear(self) -> None:
        """The run is over, and its logs go with it."""
        self.waiting, self.dealt_with = {}, _NONE


class StepLogWriter:
    """Hears of logs when attempts are recorded, and writes them when it is time."""

    def __init__(self, cluster: ClusterWatches) -> None:
        self._cluster = cluster
        self._client = cluster.client

    @staticmethod
    def heard(memory: LogMemory, key: tuple[str, int], printed: Printed | None) -> None:
        """An attempt is recorded, and this is the end of what it printed.

        None if its log could not be had: there is nothing to show, nor to look for.
        """
        if printed is None:
            memory.dealt_with |= {key}
        else:
            memory.waiting[key] = _entry(*key, printed)

    async def run(self, scene: Scene, run: RunObject, report: RunReport, memory: LogMemory) -> float:
        """Write what is due; seconds after which to ask again, 0 if nothing is left to write.

        Raises:
            errors.ApiError: the server cannot be asked; what is due stays so.
        """
        if run.ledger.phase in (Phase.CLEANED, Phase.ABANDONED):
            memory.clear()
            return 0.0
        now = self._cluster.now()
        waiting, forgotten = memory.waiting, _forgotten(run, memory, now)
        # While something runs, what has ended waits for company.
        ends = _ends(run, waiting, now)
        dues = [] if not ends else [now] if _rests(report) else [due(min(ends), min(ends), max(ends))]
        dues += [ended + ABANDONED_MS for ended in forgotten.values()]
        if not dues:
            return 0.0
        if min(dues) > now:
            return (min(dues) - now) / 1000 + 0.001
        lost = {key for key, ended in forgotten.items() if ended + ABANDONED_MS <= now}
        try:
            found = await self._recalled(scene, run, lost) if lost else {}
            await self._write(run, list((found | waiting).values()))
        except (*errors.ABSENT, errors.Forbidden, errors.Invalid) as error:
            # The namespace is going, or this cluster has an older Dayfly's definitions: logs stop nothing.
            log.warning("logs of run %s are not shown: %s", run.metadata.name, error)
        memory.dealt_with |= {*waiting, *lost}
        memory.waiting = {}
        return 0.0

    async def _recalled(self, scene: Scene, run: RunObject, lost: set[_Attempt]) -> dict[_Attempt, StepLog]:
        """Of lost logs those that nobody has written, from their Secrets."""
        there = {(each.unit, each.attempt) for bundle in await self._bundles(run) for each in bundle.spec.logs}
        found: dict[_Attempt, StepLog] = {}
        for unit, attempt in sorted(lost - there):
            if unit not in scene.plan.steps:
                continue
            secret = names.outputs_name(run.ledger.uid, unit, attempt)
            try:
                kept = await self._client.get(SECRETS, secret, names.namespace_of(scene.plan.steps[unit].unit))
            except (errors.NotFound, errors.Forbidden):
                continue
            # Nothing may mean that it was lost. It does not say how much there was; below the limit it was all.
            data = kept.data or {}
            if tail := data.get(LOG_KEY, b""):
                size = len(tail) if len(tail) < TAIL_LIMIT else 0
                found[unit, attempt] = _entry(unit, attempt, Printed(tail, size, times_of(data.get(TIMES_KEY, b""))))
        return found

    async def _bundles(self, run: RunObject) -> list[StepLogsObject]:
        label = f"{names.RUN_LABEL}={run.metadata.name}"
        found = await self._client.list_all(STEP_LOGS, run.ledger.target.namespace, labels=label)
        return [each for each in found.items if owned(each.metadata, run)]

    async def _write(self, run: RunObject, entries: list[StepLog]) -> None:
        """Write them, several in one object. Its name is its first one's, so that doing it twice is doing it once."""
        namespace = run.ledger.target.namespace
        rest = sorted(entries, key=lambda entry: (entry.unit, entry.attempt))
        while rest:
            some = _fitting(rest)
            body = _manifest(run, some)
            try:
                await self._client.create(STEP_LOGS, body, namespace)
            except (errors.AlreadyExists, errors.OutcomeUnknown) as fault:
                made = await self._client.find(STEP_LOGS, body["metadata"]["name"], namespace)
                if made is None:
                    raise fault from None  # it is tried again
                there = {(each.unit, each.attempt) for each in made.spec.logs}
                some = [each for each in rest if (each.unit, each.attempt) in there]
            rest = [each for each in rest if each not in some]
        if any(entry.attempt > MOST_ATTEMPTS for entry in entries):
            await self._trim(run)

    async def _trim(self, run: RunObject) -> None:
        """Take away what only speaks of attempts long ago."""
        for bundle in await self._bundles(run):
            oldest = [each.attempt <= run.ledger.unit(each.unit).attempt - MOST_ATTEMPTS for each in bundle.spec.logs]
            if all(oldest):
                meta = bundle.metadata
                await self._client.delete(STEP_LOGS, meta.name, meta.namespace, uid=meta.uid)


def _ends(run: RunObject, waiting: dict[_Attempt, StepLog], now: int) -> list[int]:
    records = {unit: run.ledger.unit(unit) for unit, _ in waiting}
    return [
        records[unit].ended_at if records[unit].attempt == attempt else now - GOING_ON_MS for unit, attempt in waiting
    ]


def _forgotten(run: RunObject, memory: LogMemory, now: int) -> dict[_Attempt, int]:
    """Recorded attempts of late of which we know nothing, and when each ended."""
    known = memory.dealt_with | memory.waiting.keys()
    return {
        (unit, record.attempt): record.ended_at
        for unit, record in run.ledger.units.items()
        if record.state is State.DONE
        and not record.kept
        and now - record.ended_at < RECENT_MS
        and (unit, record.attempt) not in known
    }


def _rests(report: RunReport) -> bool:
    """Whether no further step is about to start or end: what is there is written now."""
    states = {unit.state for unit in report.units if unit.kind != "fork"}
    return "running" not in states and (report.ready or bool(states & {"failed", "retrying", "unknown"}))


def _entry(unit: str, attempt: int, printed: Printed) -> StepLog:
    try:
        text, encoding = printed.tail.decode(), "utf-8"
    except UnicodeDecodeError:
        text, encoding = base64.b64encode(printed.tail).decode(), "base64"
    times = flatten(printed.times)
    return StepLog(unit=unit, attempt=attempt, size=printed.size, encoding=encoding, text=text, times=times)


def _fitting(entries: list[StepLog]) -> list[StepLog]:
    """The first of them: as many as one object has room for."""
    sizes = itertools.accumulate(_in_json(entry) for entry in entries[:MOST_IN_ONE])
    return entries[: max(sum(size <= MOST_BYTES for size in sizes), 1)]


def _in_json(entry: StepLog) -> int:
    """How many bytes it takes; the server writes a few characters by their numbers that JSON has as they are."""
    numbered = sum(map(entry.text.count, "<>&\u2028\u2029"))
    return len(msgspec.json.encode(entry)) + 5 * numbered


def _manifest(run: RunObject, logs: list[StepLog]) -> dict[str, Any]:
    target = run.ledger.target
    name = names.derive_name("l", target.name, "logs", target.uid, logs[0].unit, str(logs[0].attempt))
    sandbox = SandboxRef(namespace=target.namespace, name=target.name, uid=target.uid)
    return {
        "apiVersion": STEP_LOGS.api_version,
        "kind": STEP_LOGS.kind,
        "metadata": {
            "name": name,
            "namespace": target.namespace,
            "labels": {names.RUN_LABEL: run.metadata.name},
            "ownerReferences": [owner(run)],
        },
        "spec": msgspec.to_builtins(StepLogsSpec(sandbox=sandbox, logs=tuple(logs))),
    }
