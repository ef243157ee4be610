"""Logs of steps for users: StepLogs objects in the namespace of the Sandbox.

The tail of each log is stored with the attempt's outputs, in a Secret of the steps' namespace, before the attempt is
recorded. Access to these Secrets would reveal the outputs of all sandboxes in the cluster. So would access to the logs
of the pods, which contain large outputs. The copy in a StepLogs object is readable for everyone who may view the
Sandbox's namespace. Logs of steps that end while the run is busy are written together, so a chain of short steps costs
one write. After a crash, the next operator reads the missing logs from the Secrets.
"""

import base64
import itertools
import logging
from typing import Any, Final

import msgspec

from dayfly.execute.pod import names
from dayfly.execute.pod.logs import TAIL_LIMIT, PrintedOutput
from dayfly.execute.turn import Scene
from dayfly.kube import errors
from dayfly.kube.objects import SECRETS
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.objects import STEP_LOGS, RunObject, StepLogsObject, is_owned_by, run_owner_reference
from dayfly.operator.outputs.attempt_secrets import LOG_KEY, TIMES_KEY, times_of
from dayfly.operator.status.status_throttle import PROGRESS_INTERVAL_MS, due_at
from dayfly.spec.kinds import SandboxRef, StepLog, StepLogsSpec
from dayfly.spec.log_times import flatten
from dayfly.spec.report import RunReport
from dayfly.spec.run import Phase, State

log = logging.getLogger(__name__)

# A recorded attempt without a log after the first time is read from its Secret, unless it is older than the second.
RECOVER_AFTER_MS, RECOVER_WITHIN_MS = 20_000, 15 * 60_000
# Limits of one object. An API server accepts 1.5 MB, and control characters take six bytes in JSON.
MAX_LOGS_PER_OBJECT, MAX_BYTES_PER_OBJECT = 8, 1 << 20
# Number of attempts of a step whose logs are kept.
MAX_ATTEMPTS = 10

_Attempt = tuple[str, int]
# Shared by all runs: each empty set takes 216 bytes.
_NONE: Final[frozenset[_Attempt]] = frozenset()


class LogMemory:
    """One run: logs to write, and attempts whose logs need nothing more."""

    __slots__ = ("handled", "waiting")

    def __init__(self) -> None:
        self.waiting: dict[_Attempt, StepLog] = {}
        self.handled: frozenset[_Attempt] = _NONE

    def clear(self) -> None:
        """Drop everything: the run is over, and its StepLogs are deleted with it."""
        self.waiting, self.handled = {}, _NONE


class StepLogWriter:
    """Collects the logs of recorded attempts and writes them when they are due."""

    def __init__(self, cluster: ClusterWatches) -> None:
        self._cluster = cluster
        self._client = cluster.client

    @staticmethod
    def add_log(memory: LogMemory, key: tuple[str, int], printed: PrintedOutput | None) -> None:
        """Add the log of a recorded attempt; None if it could not be read."""
        if printed is None:
            memory.handled |= {key}
        else:
            memory.waiting[key] = _entry(*key, printed)

    async def write_due(self, scene: Scene, run: RunObject, report: RunReport, memory: LogMemory) -> float:
        """Write the logs that are due. Return the seconds until the next ones are; 0 if none is left.

        Raises:
            errors.ApiError: the logs were not written and remain due.
        """
        if run.ledger.phase in (Phase.CLEANED, Phase.ABANDONED):
            memory.clear()
            return 0.0
        now = self._cluster.now()
        waiting, forgotten = memory.waiting, _forgotten(run, memory, now)
        # While steps run, the logs of ended steps wait, so that several are written together.
        ends = _attempt_ends(run, waiting, now)
        dues = [] if not ends else [now] if _is_idle(report) else [due_at(min(ends), min(ends), max(ends))]
        dues += [ended + RECOVER_AFTER_MS for ended in forgotten.values()]
        if not dues:
            return 0.0
        if min(dues) > now:
            return (min(dues) - now) / 1000 + 0.001
        lost = {key for key, ended in forgotten.items() if ended + RECOVER_AFTER_MS <= now}
        try:
            found = await self._read_secrets(scene, run, lost) if lost else {}
            await self._write(run, list((found | waiting).values()))
        except (*errors.ABSENT, errors.Forbidden, errors.Invalid) as error:
            # The namespace is being deleted, or its CRDs are of an older version. Logs must not block the run.
            log.warning("logs of run %s were not written: %s", run.metadata.name, error)
        memory.handled |= {*waiting, *lost}
        memory.waiting = {}
        return 0.0

    async def _read_secrets(self, scene: Scene, run: RunObject, lost: set[_Attempt]) -> dict[_Attempt, StepLog]:
        """Return the logs that are in no StepLogs object, from their Secrets."""
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
            # An empty value may mean that the log was lost. The size is unknown, unless the tail is below the limit.
            data = kept.data or {}
            if tail := data.get(LOG_KEY, b""):
                size = len(tail) if len(tail) < TAIL_LIMIT else 0
                found[unit, attempt] = _entry(
                    unit, attempt, PrintedOutput(tail, size, times_of(data.get(TIMES_KEY, b"")))
                )
        return found

    async def _bundles(self, run: RunObject) -> list[StepLogsObject]:
        label = f"{names.RUN_LABEL}={run.metadata.name}"
        found = await self._client.list_all(STEP_LOGS, run.ledger.target.namespace, labels=label)
        return [each for each in found.items if is_owned_by(each.metadata, run)]

    async def _write(self, run: RunObject, entries: list[StepLog]) -> None:
        """Write the logs, several in each object.

        An object has the name of its first log, so repeating this is safe.
        """
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
                    raise fault from None  # it is retried
                there = {(each.unit, each.attempt) for each in made.spec.logs}
                some = [each for each in rest if (each.unit, each.attempt) in there]
            rest = [each for each in rest if each not in some]
        if any(entry.attempt > MAX_ATTEMPTS for entry in entries):
            await self._trim(run)

    async def _trim(self, run: RunObject) -> None:
        """Delete objects that only contain logs of old attempts."""
        for bundle in await self._bundles(run):
            oldest = [each.attempt <= run.ledger.unit(each.unit).attempt - MAX_ATTEMPTS for each in bundle.spec.logs]
            if all(oldest):
                meta = bundle.metadata
                await self._client.delete(STEP_LOGS, meta.name, meta.namespace, uid=meta.uid)


def _attempt_ends(run: RunObject, waiting: dict[_Attempt, StepLog], now: int) -> list[int]:
    records = {unit: run.ledger.unit(unit) for unit, _ in waiting}
    return [
        records[unit].ended_at if records[unit].attempt == attempt else now - PROGRESS_INTERVAL_MS
        for unit, attempt in waiting
    ]


def _forgotten(run: RunObject, memory: LogMemory, now: int) -> dict[_Attempt, int]:
    """Return recent recorded attempts without a known log, and when each ended."""
    known = memory.handled | memory.waiting.keys()
    return {
        (unit, record.attempt): record.ended_at
        for unit, record in run.ledger.units.items()
        if record.state is State.DONE
        and not record.is_kept
        and now - record.ended_at < RECOVER_WITHIN_MS
        and (unit, record.attempt) not in known
    }


def _is_idle(report: RunReport) -> bool:
    """Return whether no step is running or about to start, so that waiting for more logs is useless."""
    states = {unit.state for unit in report.units if unit.kind != "fork"}
    return "running" not in states and (report.ready or bool(states & {"failed", "retrying", "unknown"}))


def _entry(unit: str, attempt: int, printed: PrintedOutput) -> StepLog:
    try:
        text, encoding = printed.tail.decode(), "utf-8"
    except UnicodeDecodeError:
        text, encoding = base64.b64encode(printed.tail).decode(), "base64"
    times = flatten(printed.times)
    return StepLog(unit=unit, attempt=attempt, size=printed.size, encoding=encoding, text=text, times=times)


def _fitting(entries: list[StepLog]) -> list[StepLog]:
    """Return the first entries, as many as fit into one object."""
    sizes = itertools.accumulate(_in_json(entry) for entry in entries[:MAX_LOGS_PER_OBJECT])
    return entries[: max(sum(size <= MAX_BYTES_PER_OBJECT for size in sizes), 1)]


def _in_json(entry: StepLog) -> int:
    """Return the entry's size in bytes. The API server escapes some characters that our encoder does not."""
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
            "ownerReferences": [run_owner_reference(run)],
        },
        "spec": msgspec.to_builtins(StepLogsSpec(sandbox=sandbox, logs=tuple(logs))),
    }
