"""The outputs, history and logs of a run, as a server may read them. Sensitive values do not leave the cluster."""

from __future__ import annotations

import base64
import binascii
from typing import NamedTuple

from dayfly.execute.pod import names
from dayfly.execute.work_order import CannotRenderError
from dayfly.kube.client import KubeClient
from dayfly.kube.objects import SECRETS
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.hold_index import members_of
from dayfly.operator.cluster.objects import DOCUMENTS, RUNS, STEP_LOGS, MemberRef, RunObject
from dayfly.operator.outputs.attempt_secrets import verified_values
from dayfly.operator.outputs.producers import find_producer
from dayfly.spec.kinds import StepLog
from dayfly.spec.lifecycle import PARENT_PREFIX, Lifecycle, LifecycleEvent, is_parent_unit, unit_id
from dayfly.spec.log_times import TimeEntry, entries_from
from dayfly.spec.run import Result
from dayfly.spec.run_data import HistoryEntry, LogInfo, Value
from dayfly.spec.steps.webhook import DEFINITE

MAX_READ_BYTES = 1 << 20


class KeptLog(NamedTuple):
    """The stored end of one log, with the times of its parts."""

    data: bytes
    entries: tuple[TimeEntry, ...]

    def read(self, offset: int, limit: int) -> bytes:
        return self.data[offset : offset + min(limit, MAX_READ_BYTES)]

    def times(self) -> tuple[TimeEntry, ...]:
        return self.entries


Kept = dict[tuple[str, int], KeptLog]


async def read_values(cluster: ClusterWatches, run: RunObject) -> tuple[Value, ...]:
    """Return all recorded outputs. Sensitive ones are listed without their value, which is not read."""
    found: list[Value] = []
    for document in await _documents(cluster, run):
        for unit in (unit for event in LifecycleEvent for unit in document.units(event)):
            name = unit_id(document.resource, unit.name)
            if is_parent_unit(name):
                continue  # the outputs of a parent belong to all its holders
            recorded = {each: known for each, known in run.ledger.unit(name).outputs.items() if each != DEFINITE}
            sensitive = {output.name for output in unit.outputs if output.sensitive}
            secret = sorted(output for output, record in recorded.items() if record.sensitive or output in sensitive)
            found += [Value(unit=name, output=output, value=b"", sensitive=True) for output in secret]
            open_ = {output: record for output, record in recorded.items() if output not in secret}
            try:
                source = await find_producer(cluster, run, document, unit)
            except CannotRenderError:
                continue
            origins = source.run.ledger.unit(source.name).outputs
            attempts = {output: origins[output].attempt for output in open_ if output in origins}
            for attempt in sorted(set(attempts.values())):
                wanted = {output: open_[output] for output, its in attempts.items() if its == attempt}
                secret_name = names.outputs_name(source.run.ledger.uid, source.name, attempt)
                kept = await cluster.client.find(SECRETS, secret_name, names.namespace_of(source.unit))
                there = verified_values(
                    (kept.data if kept else None) or {}, Result(outcome="succeeded", outputs=wanted)
                )
                found += [Value(unit=name, output=output, value=value) for output, value in (there or {}).items()]
    return tuple(found)


async def _documents(cluster: ClusterWatches, run: RunObject) -> list[Lifecycle]:
    """Return the documents of a run that exist."""
    found = list(run.inline_documents() or ())
    for pin in run.spec.documents:
        document = cluster.documents.get(pin.name)
        if document is None:
            document = await cluster.client.find(DOCUMENTS, pin.name)
        if document is not None:
            found.append(document.spec)
    return found


def build_history(run: RunObject) -> tuple[HistoryEntry, ...]:
    """Return the moves that the ledger still shows: the latest attempt of each step, and the end of the run."""
    moves: list[tuple[int, str, int, str, str, str]] = [(run.ledger.born_at, "", 0, "Born", "", "")]
    for name, record in run.ledger.units.items():
        if record.claimed_at:
            moves.append((record.claimed_at, name, record.attempt, "Claim", "", ""))
        if record.ended_at:
            reason = record.reason or record.outcome
            moves.append((record.ended_at, name, record.attempt, "Record", reason, record.message))
    for move, request in (("Close", run.ledger.closed), ("Abandon", run.ledger.abandon)):
        if request is not None:
            moves.append((request.at, "", 0, move, request.reason, request.message))
    return tuple(
        HistoryEntry(seq=seq, at=at, unit=unit, attempt=attempt, move=move, reason=reason, message=message)
        for seq, (at, unit, attempt, move, reason, message) in enumerate(sorted(moves))
    )


async def read_logs(client: KubeClient, run: RunObject) -> Kept:
    """Return the ends of the stored logs of a run's steps, by unit and attempt.

    The steps of a pool member have the names that they would have without a pool, and those of a parent a prefix.
    """
    target = run.ledger.target
    found = await _read_stored(client, run.metadata.name, target.namespace, target.uid)
    for resource, text in members_of(run.ledger):
        member = await client.find(RUNS, MemberRef.parse(text).run)
        if member is None:
            continue  # its logs have gone with it
        prefix = f"{resource}/{PARENT_PREFIX * member.ledger.is_parent}"
        for (unit, attempt), log in (await read_logs(client, member)).items():
            found.setdefault((f"{prefix}{unit.rpartition('/')[2]}", attempt), log)
    return found


async def _read_stored(client: KubeClient, run: str, namespace: str, target: str) -> Kept:
    """Return the stored logs of a run by its name, and by the namespace and UID of its target."""
    return {
        (log.unit, log.attempt): KeptLog(_bytes(log), entries_from(log.times))
        for bundle in (await client.list_all(STEP_LOGS, namespace, labels=f"{names.RUN_LABEL}={run}")).items
        if bundle.spec.sandbox.uid == target
        for log in bundle.spec.logs
    }


def list_logs(kept: Kept) -> tuple[LogInfo, ...]:
    """Describe the stored logs. Each counts as complete: nothing will be added to it."""
    return tuple(
        LogInfo(unit=unit, attempt=attempt, size=len(log.data), sealed=True)
        for (unit, attempt), log in sorted(kept.items())
    )


def _bytes(log: StepLog) -> bytes:
    if log.encoding != "base64":
        return log.text.encode()
    try:
        return base64.b64decode(log.text, validate=True)
    except (binascii.Error, ValueError):
        return b""
