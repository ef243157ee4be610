"""The attempts whose outputs a step's pod reads, pinned in a label when the pod is created.

A pod names the Secrets of certain attempts and may be created while these attempts still run. Attempt numbers only
increase. A pod for older attempts than the ledger holds must not be claimed, so it is replaced. A pod that contains
outdated values of a fork is replaced as well.
"""

import hashlib
import re
from collections.abc import Iterator

from dayfly.execute.inputs import Forks, is_fit, reads_forks, resolve
from dayfly.execute.pod import names
from dayfly.execute.pod.read import parse_time
from dayfly.execute.pod.render import PodSecretKey
from dayfly.kube.objects import Pod
from dayfly.operator.cluster.objects import RunObject
from dayfly.plan.sealed import SealedStep
from dayfly.spec.lifecycle import unit_id
from dayfly.spec.run import ALIVE, UnitRecord

_LABEL_LIMIT = 63
_ATTEMPTS = re.compile(r"([0-9]{1,9}(?:-[0-9]{1,9})*)(?:-f[0-9a-f]+)?")


def secret_key(run: RunObject, producer: str, output: str) -> PodSecretKey | None:
    """Return the key of an output, which may still be running; None if there is no such output."""
    attempt = _producing_attempt(run.ledger.unit(producer), output)
    return PodSecretKey(names.outputs_name(run.ledger.uid, producer, attempt), output) if attempt else None


def pin_label(run: RunObject, step: SealedStep, forks: Forks) -> str:
    """Return the pinned attempts in the order of the inputs, such as `1-2`; 0 stands for an absent output.

    A digest of the values that forks provide follows. The label is empty if the step has no inputs or the label would
    be too long. A pod without a label is not created before its turn.
    """
    unfit = {} if step.creates else resolve(run.ledger, step.unit, step.resource, must_run=True).unfit
    pins = [
        "0" if name in unfit else str(_producing_attempt(record, output)) for name, record, output in _inputs(run, step)
    ]
    if reads_forks(step.unit):
        pins.append(_fork_digest(run, step, forks))
    label = "-".join(pins)
    return label if len(label) <= _LABEL_LIMIT else ""


def _fork_digest(run: RunObject, step: SealedStep, forks: Forks) -> str:
    """Return a digest of the values that forks provide to the step; a value that is not available now is left out."""
    sources = resolve(run.ledger, step.unit, step.resource, must_run=True, forks=forks).sources
    pins = [(item.name, sources[item.name]) for item in step.unit.inputs if item.fork is not None]
    return f"f{hashlib.sha256(repr(pins).encode()).hexdigest()[:12]}"


def is_current(run: RunObject, step: SealedStep, pod: Pod, now: int, forks: Forks) -> bool:
    """Return whether a gated pod may still start: it reads the recorded outputs, and it has time left to start."""
    return (
        is_fit(run.ledger, step)
        and _pinned(pod) == pin_label(run, step, forks)
        and has_time_to_start(step, parse_time(pod.metadata.creation_timestamp), now)
    )


def has_time_to_start(step: SealedStep, created: int, now: int) -> bool:
    """Return whether a pod of that age has half of its time to start left."""
    limits = step.unit.timeouts
    return now - created < (limits.schedule_ms + limits.pull_ms) // 2


def is_newer(run: RunObject, step: SealedStep, pod: Pod) -> bool:
    """Return whether the pod reads later attempts than our ledger holds: a peer with newer data has created it."""
    match = _ATTEMPTS.fullmatch(_pinned(pod))
    attempts = map(int, match[1].split("-")) if match else ()
    return any(attempt > record.attempt for attempt, (_, record, _) in zip(attempts, _inputs(run, step), strict=False))


def _inputs(run: RunObject, step: SealedStep) -> Iterator[tuple[str, UnitRecord, str]]:
    for item in step.unit.inputs:
        if item.from_ is not None:
            producer = unit_id(item.from_.resource or step.resource, item.from_.unit)
            yield item.name, run.ledger.unit(producer), item.from_.output


def _producing_attempt(record: UnitRecord, output: str) -> int:
    """Return the attempt with the output, or the running attempt that may produce it; 0 if there is none."""
    if record.state in ALIVE:
        return record.attempt
    return record.outputs[output].attempt if output in record.outputs else 0


def _pinned(pod: Pod) -> str:
    return (pod.metadata.labels or {}).get(names.READS_LABEL, "")
